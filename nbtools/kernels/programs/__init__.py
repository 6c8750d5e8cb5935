"""Kernels that are programs: bash, Node.js, PowerShell."""
