use units::Share;

use super::*;
use crate::run;

/// A device that loses nothing, and a machine that takes only so many packets a second.
struct Machine {
    takes: f64,
}

impl Tester for Machine {
    fn trial(&mut self, load: Frequency, duration: Span) -> Result<Trial, GenError> {
        let sent = (load.events() * duration.secs_f64()).round() as u64;
        let received = sent.min((self.takes * duration.secs_f64()) as u64);
        let reached = Frequency::per_second(self.takes);
        let is_full = received < sent;
        Ok(Trial {
            load,
            duration,
            planned: sent,
            sent,
            received,
            late: 0,
            duplicates: 0,
            reordered: 0,
            foreign: 0,
            invalid: is_full.then_some(Invalid::SinkFull { times: 1, reached }),
            latency: run::new_histogram(),
        })
    }
}

/// Loss behind a full receiving port is no result of the device.
#[test]
fn a_full_receiving_port_limits_the_search() {
    let bench = Bench {
        goals: vec![Goal::with_loss(Share::ZERO)],
        lowest: Some(Frequency::per_second(1e3)),
        highest: Some(Frequency::per_second(2e6)),
        latency: None,
        back_to_back: false,
    };
    let result = bench.run(&mut Machine { takes: 5e5 }, || false, |_| {}).unwrap();
    assert_eq!(result.stopped, None);
    assert!(!result.is_valid());
    let Verdict::GeneratorLimited { load } = result.goals[0].verdict else {
        panic!("{:?}", result.goals)
    };
    assert!((load.events() / 4.5e5 - 1.0).abs() < 1e-6, "{load}");
}
