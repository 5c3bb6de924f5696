"""What campaigns ask: one folder for each study, with its plan, its measurement and its report."""
