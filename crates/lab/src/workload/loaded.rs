//! A congestion control of ours that a turn brings along.

use crate::Failure;
use crate::file::SystemSpec;
use accel::algorithm::{Algorithm, NAME, Registration};
use accel::{AccelError, Tunables};
use toml::Spanned;
use units::Span;

/// `tcpa` in the kernel for one turn, under a name that nobody else has: whoever uses `weir accel` on this
/// machine is not disturbed, and what its connections remember of paths is not known here. It leaves with
/// this process, however that ends.
#[derive(Debug)]
pub(super) struct OurAlgorithm {
    /// With the name it has for now.
    pub(super) system: SystemSpec,
    _registration: Registration,
    _algorithm: Algorithm,
}

impl OurAlgorithm {
    /// `None` if the system's algorithm is none of ours.
    pub(super) fn of(system: &SystemSpec) -> Result<Option<Self>, Failure> {
        let Some(wanted) = system.congestion.as_ref().filter(|name| name.get_ref() == NAME) else {
            return Ok(None);
        };
        let name = format!("weir_{}", std::process::id());
        let memory_age = match system.is_warm() {
            true => Tunables::default().memory_age,
            false => Span::ZERO,
        };
        let tunables = Tunables { memory_age, ..Tunables::default() };
        let refused = |error: AccelError| Failure::Workload(format!("{NAME}: {error}"));
        let mut algorithm = Algorithm::load_beside(&name, &tunables).map_err(refused)?;
        let registration = algorithm.register().map_err(refused)?;
        let mut system = system.clone();
        system.congestion = Some(Spanned::new(wanted.span(), name));
        Ok(Some(Self { system, _registration: registration, _algorithm: algorithm }))
    }
}
