//! Algorithms of Weir in the kernel, for the states of a lab.
//!
//! The kernel's verifier takes a second or two for these programs, several times the length of a
//! short turn. Therefore algorithms that no connection uses stay in the kernel while successive
//! turns have one state. In the other state these algorithms are not in the kernel.

use crate::model::Failure;
use accel::algorithm::{Algorithm, Registration};
use accel::caqm::Network;
use accel::caqm::programs::Unpinned;
use accel::{AccelError, Tunables};
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The algorithms that are in the kernel now. The kernel removes the algorithms when this value is
/// dropped, or when this process ends.
#[derive(Default)]
pub(crate) struct Loaded(Mutex<Vec<InKernel<Held>>>);

/// An algorithm and its name in the kernel.
struct InKernel<H> {
    algorithm: String,
    name: String,
    _held: H,
}

/// The descriptors that keep one algorithm in the kernel.
enum Held {
    Tcpa { _registration: Registration, _algorithm: Box<Algorithm> },
    Caqm { _programs: Box<Unpinned> },
}

impl Loaded {
    /// Removes all algorithms except `wanted` from the kernel, then loads the missing algorithms.
    /// `wanted`: Weir's name of each algorithm, and its name in the kernel.
    pub(super) fn keep_only(&self, wanted: &[(String, String)]) -> Result<(), Failure> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        exchange(&mut loaded, wanted, load)
    }

    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}

/// Returns the kernel name of an algorithm that no connection uses.
pub(super) fn unused_name(algorithm: &str) -> String {
    // TCP_CA_NAME_MAX of include/net/tcp.h is 16, with the terminating zero.
    format!("weir_{}_{algorithm}", std::process::id()).chars().take(15).collect()
}

fn exchange<H>(
    loaded: &mut Vec<InKernel<H>>,
    wanted: &[(String, String)],
    load: impl Fn(&str, &str) -> Result<H, Failure>,
) -> Result<(), Failure> {
    let is_wanted = |one: &InKernel<H>| {
        wanted.iter().any(|(algorithm, name)| one.algorithm == *algorithm && one.name == *name)
    };
    // An algorithm that connections have used remembers paths, and a turn must begin without the
    // memory of an earlier turn.
    loaded.retain(|one| is_wanted(one) && one.name == unused_name(&one.algorithm));
    for (algorithm, name) in wanted {
        if loaded.iter().all(|one| one.name != *name) {
            let held = load(algorithm, name)?;
            let (algorithm, name) = (algorithm.clone(), name.clone());
            loaded.push(InKernel { algorithm, name, _held: held });
        }
    }
    Ok(())
}

fn load(algorithm: &str, name: &str) -> Result<Held, Failure> {
    let refused = |error: AccelError| Failure::Workload(format!("{algorithm}: {error}"));
    match algorithm {
        accel::caqm::NAME => {
            let programs = Unpinned::start(name, &Network::default(), &[]).map_err(refused)?;
            Ok(Held::Caqm { _programs: Box::new(programs) })
        }
        _ => {
            let mut algorithm =
                Algorithm::load_unpinned(name, &Tunables::default()).map_err(refused)?;
            let registration = algorithm.register().map_err(refused)?;
            Ok(Held::Tcpa { _registration: registration, _algorithm: Box::new(algorithm) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn an_unused_algorithm_stays_loaded_until_the_state_changes() {
        let log = RefCell::new(Vec::new());
        struct Logged<'a>(&'a RefCell<Vec<String>>, String);
        impl Drop for Logged<'_> {
            fn drop(&mut self) {
                self.0.borrow_mut().push(format!("-{}", self.1));
            }
        }
        let load = |algorithm: &str, _: &str| {
            log.borrow_mut().push(format!("+{algorithm}"));
            match algorithm {
                "broken" => Err(Failure::Workload("refused".to_owned())),
                _ => Ok(Logged(&log, algorithm.to_owned())),
            }
        };
        let wanted = |names: &[&str]| -> Vec<(String, String)> {
            names.iter().map(|name| ((*name).to_owned(), unused_name(name))).collect()
        };
        let mut loaded = Vec::new();
        for state in [&["tcpa", "caqm"][..], &["tcpa", "caqm"], &["caqm"], &[], &["tcpa"]] {
            exchange(&mut loaded, &wanted(state), load).unwrap();
        }
        assert_eq!(log.take(), ["+tcpa", "+caqm", "-tcpa", "-caqm", "+tcpa"]);
        let used = [("tcpa".to_owned(), "weir_7".to_owned())];
        for _ in 0..2 {
            exchange(&mut loaded, &used, load).unwrap();
        }
        assert_eq!(log.take(), ["-tcpa", "+tcpa", "-tcpa", "+tcpa"]);
        exchange(&mut loaded, &wanted(&["broken"]), load).unwrap_err();
        assert!(loaded.is_empty());
        assert_eq!(log.take(), ["-tcpa", "+broken"]);
        assert!(unused_name("caqm").len() <= 15);
    }
}
