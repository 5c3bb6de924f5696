"""An adversarial corpus against isolation, and a legitimate one, with a victim that is measured; causes of loss, planted."""
