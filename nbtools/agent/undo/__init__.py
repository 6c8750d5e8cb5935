"""Taking back what runs did: what is seen while they change things, what is kept, and how it comes back."""
