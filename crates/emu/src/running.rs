use crate::ends::Ends;
use crate::report::Identity;
use crate::{
    Cable, Direction, EmuError, Emulator, Endpoint, Handle, LinkReport, Scheduling, Settings,
    UsageError,
};
use host::{Address, Privilege};
use link::LinkConfig;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use units::Span;

/// The validated description of a link to create. The validation has no side effects.
#[derive(Debug, Clone)]
pub struct LinkPlan {
    /// The name of the link; `None` for the first free name of `link0`, `link1`, …
    pub name: Option<String>,
    pub ends: [Endpoint; 2],
    /// Addresses of created interfaces.
    pub addresses: [Vec<Address>; 2],
    pub mtu: u32,
    /// The link from a to b.
    pub forward: LinkConfig,
    pub backward: LinkConfig,
    /// The settings of both configurations. The user may change the settings while the link runs;
    /// derived values change with the settings.
    pub settings: [Settings; 2],
    /// The duration; `None`: the link runs until it is stopped.
    pub duration: Option<Span>,
    pub scheduling: Scheduling,
}

/// A link between two endpoints that carries packets. Dropping this value removes all objects that
/// the link created.
#[derive(Debug)]
pub struct RunningLink {
    emulator: Emulator,
    inspector: Inspector,
    /// Declared after the emulator, so that the ports close before their interfaces are removed.
    _ends: Ends,
}

/// Reads and changes a running link from any thread.
#[derive(Debug, Clone)]
pub struct Inspector {
    handle: Handle,
    identity: Arc<Identity>,
    ways: Arc<Mutex<Ways>>,
}

/// The links of the two directions, and the settings from which they are derived.
#[derive(Debug)]
struct Ways {
    settings: [Settings; 2],
    configs: [LinkConfig; 2],
}

impl RunningLink {
    /// Starts a link under `name`, which was claimed for it.
    pub fn start(name: &str, plan: LinkPlan, privilege: Privilege) -> Result<Self, EmuError> {
        let (mut ends, [a, b]) = Ends::attach(&plan, privilege)?;
        let identity = Identity {
            name: name.to_owned(),
            ends: plan.ends.map(|end| end.to_string()),
            notes: std::mem::take(&mut ends.notes),
        };
        let configs = [plan.forward.clone(), plan.backward.clone()];
        let ways = Ways { settings: plan.settings, configs };
        let cable = Cable {
            name: name.to_owned(),
            a,
            b,
            forward: plan.forward,
            backward: plan.backward,
            interrupts: Span::ZERO,
            access: None,
            tpid: None,
        };
        // Without root the command has already printed a note, which an error would repeat.
        let real_time = plan.scheduling.real_time && privilege == Privilege::Root;
        let emulator = Emulator::start(vec![cable], Scheduling { real_time, ..plan.scheduling })?;
        let inspector = Inspector {
            handle: emulator.handle(),
            identity: Arc::new(identity),
            ways: Arc::new(Mutex::new(ways)),
        };
        Ok(Self { emulator, inspector, _ends: ends })
    }

    pub fn inspector(&self) -> Inspector {
        self.inspector.clone()
    }

    /// Notes about the created interfaces, and warnings.
    pub fn notes(&self) -> &[String] {
        &self.inspector.identity.notes
    }

    pub fn tid(&self) -> u32 {
        self.emulator.tid()
    }

    /// Whether the link runs; if not, [`finish`](Self::finish) returns the reason.
    pub fn is_running(&self) -> bool {
        self.emulator.is_running()
    }

    /// Removes the link and returns its counters, and the queues over time.
    pub fn finish(self) -> Result<LinkReport, EmuError> {
        let seen = self.emulator.finish()?;
        self.inspector.report(seen)
    }
}

impl Inspector {
    /// Returns the counters so far.
    pub fn inspect(&self) -> Result<LinkReport, EmuError> {
        self.report(self.handle.statistics()?)
    }

    /// Changes one direction or both directions. An invalid setting changes nothing.
    pub fn change(&self, both: &Settings, ab: &Settings, ba: &Settings) -> Result<(), EmuError> {
        if [both, ab, ba].iter().any(|settings| settings.seed.is_some()) {
            return Err(UsageError::value(
                "seed",
                "cannot change while the link runs, because its random streams have begun: start \
                 another link with it",
            )
            .into());
        }
        // Hold the lock throughout, so that two concurrent changes apply in the same order to
        // settings and links.
        let mut ways = self.ways();
        let settings = [ab.or(both).or(&ways.settings[0]), ba.or(both).or(&ways.settings[1])];
        let config = |at: usize| settings[at].config().map_err(UsageError::from);
        let wanted = [config(0)?, config(1)?];
        for (direction, config) in
            [Direction::Forward, Direction::Backward].into_iter().zip(&wanted)
        {
            if ways.configs[direction.index()] != *config {
                self.handle.change(0, direction, config.clone())?;
                ways.configs[direction.index()] = config.clone();
            }
        }
        ways.settings = settings;
        Ok(())
    }

    pub fn warnings(&self) -> Vec<String> {
        self.ways().warnings()
    }

    fn report(&self, seen: crate::EmulatorStatistics) -> Result<LinkReport, EmuError> {
        let ways = self.ways();
        let (configs, warnings) = (ways.configs.clone(), ways.warnings());
        LinkReport::new(&self.identity, configs, warnings, seen).ok_or(EmuError::Ended)
    }

    /// Locks the links, even after a thread has panicked with the lock: every writer replaces a
    /// whole value, so a panic leaves no partial value.
    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ways {
    /// Returns the warnings. A warning that applies to both directions appears once.
    fn warnings(&self) -> Vec<String> {
        let mut all: Vec<String> = self.settings.iter().filter_map(Settings::warning).collect();
        all.dedup();
        all
    }
}
