"""What the learning studies share: runs side by side, and what was measured in them."""
