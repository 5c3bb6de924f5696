"""What the stack must survive: one entry per fault, done to one running lab under load (`make test-faults`)."""
