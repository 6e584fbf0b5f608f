//! Everything that `weir accel` can be told of tcpa.

use crate::AccelError;
use crate::rules::{self, Rule, Tunables};
use crate::system::System;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The first that fits decides.
    pub rules: Vec<Rule>,
    /// For sockets that choose the algorithm by themselves.
    pub defaults: Tunables,
    pub system: System,
}

impl Policy {
    pub fn check(&self) -> Result<(), AccelError> {
        rules::check(&self.rules)?;
        self.defaults.check()?;
        self.system.check()
    }
}
