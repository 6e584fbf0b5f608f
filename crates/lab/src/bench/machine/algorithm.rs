//! Loads Weir's own congestion control for one step.

use crate::model::Failure;
use crate::model::file::SystemSpec;
use accel::algorithm::{Algorithm, NAME, Registration};
use accel::{AccelError, Tunables};
use toml::Spanned;
use units::Span;

/// The kernel setting of the congestion control that new connections use.
pub(crate) const CONGESTION: &str = "net.ipv4.tcp_congestion_control";

/// `tcpa` in the kernel for one step under a unique name. The algorithm does not disturb users of
/// `weir accel` on this machine, and the path memory of these users' connections does not affect
/// the algorithm. The kernel removes the algorithm when this process ends or dies.
#[derive(Debug)]
pub(crate) struct OurAlgorithm {
    /// The system of the step, with the algorithm's temporary name.
    pub(crate) system: SystemSpec,
    _registration: Registration,
    _algorithm: Algorithm,
}

impl OurAlgorithm {
    /// Loads the algorithm. `None` if the system uses no algorithm of Weir.
    pub(crate) fn of(system: &SystemSpec) -> Result<Option<Self>, Failure> {
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
        let mut algorithm = Algorithm::load_unpinned(&name, &tunables).map_err(refused)?;
        let registration = algorithm.register().map_err(refused)?;
        let mut system = system.clone();
        system.congestion = Some(Spanned::new(wanted.span(), name));
        Ok(Some(Self { system, _registration: registration, _algorithm: algorithm }))
    }
}
