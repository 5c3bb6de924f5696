"""What the agent does: the controller's loop, an action's way from alert to release, and people's orders."""
