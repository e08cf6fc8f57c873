"""What the rules of routes mean: matches, filters, backends."""
