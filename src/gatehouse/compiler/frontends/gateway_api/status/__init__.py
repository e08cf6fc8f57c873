"""What is said of objects in their statuses."""
