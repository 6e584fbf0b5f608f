//! The complete configuration of tcpa by `weir accel`.

use crate::AccelError;
use crate::rules::{self, Rule, Tunables};
use crate::system::System;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The first matching rule decides.
    pub rules: Vec<Rule>,
    /// For sockets that choose the algorithm themselves.
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
