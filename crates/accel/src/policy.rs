//! The complete configuration of tcpa by `weir accel`.

use crate::rules::{self, Rule, Tunables};
use crate::system::System;
use crate::{AccelError, KernelAlgorithm};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The rules in order: the first matching rule decides.
    pub rules: Vec<Rule>,
    /// Tunables of sockets that choose the algorithm themselves.
    pub defaults: Tunables,
    pub system: System,
}

impl Policy {
    /// Returns the kernel's algorithms that rules give, without repeats.
    pub fn kernel_algorithms(&self) -> Vec<&KernelAlgorithm> {
        let mut all: Vec<&KernelAlgorithm> = Vec::new();
        for algorithm in self.rules.iter().filter_map(|rule| rule.algorithm.as_ref()) {
            if !all.contains(&algorithm) {
                all.push(algorithm);
            }
        }
        all
    }

    pub fn check(&self) -> Result<(), AccelError> {
        rules::check(&self.rules)?;
        self.defaults.check()?;
        self.system.check()
    }
}
