"""Models of items: what users have chosen scores other items by weights between items."""
