"""What is to be done about a target: pure functions, so that the controller and ``simulate`` agree."""
