"""What a model is offered besides the tools of the workbench, and which of all tools it is sent."""
