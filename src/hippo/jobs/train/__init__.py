"""Training of the learned queue policy; needs torch. What it writes is played by ``hippo.jobs.learned`` without."""
