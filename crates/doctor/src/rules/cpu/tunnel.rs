//! A program that takes the packets of a tunnel interface fills a core: a part of the cause `cpu`.

use super::{Advice, Finding, Outcome};
use crate::bound;
use crate::view::{Flow, View};
use crate::words::{percent, rate};

/// Whether the program behind the connection's tunnel interface lacks CPU time.
pub(super) fn program(flow: &Flow<'_>, view: &View<'_>) -> Option<Outcome> {
    let name = flow.interface()?;
    let opens = |pid: u32| {
        let last = view.last().processes.iter().find(|process| process.pid == pid);
        last.is_some_and(|process| process.tunnels.iter().any(|tunnel| tunnel == name))
    };
    let found = view.processes.iter().find(|process| process.cpu >= FULL && opens(process.pid))?;
    let has_data = flow.sender.as_ref().is_none_or(|sender| sender.has_data());
    has_data.then(|| {
        Finding::new(format!(
            "one CPU core is the limit: {} (process {}), the program behind {name}, uses {} of a core at {}",
            found.name,
            found.pid,
            percent(found.cpu),
            rate(flow.rate())
        ))
        .limits_for(found.cpu)
        .allows(bound::of_resource(flow.rate(), found.cpu))
        .seen_from("CPU time of that program, of a core", percent(found.cpu), percent(FULL))
        .advise(
            Advice::new("Use a tunnel that needs less CPU time for a packet, one with several threads, or a faster core")
                .run(format!("top -H -p {}", found.pid))
                .not("Buffers and congestion control change nothing: every packet costs that program time"),
        )
        .holds()
    })
}

/// Minimum utilisation at which a program fills a core.
const FULL: f64 = 0.85;

#[cfg(test)]
mod tests {
    use crate::recording::Task;
    use crate::rules::cpu;
    use crate::rules::sketch::Sketch;
    use units::Span;

    fn tunnel(percent: u64, interface: &'static str) -> Sketch {
        let slow = Sketch::new().tcp(|_, tcp| tcp.rtt = Some(Span::from_millis(60)));
        slow.each(move |at, sample| {
            sample.processes.push(Task {
                pid: 50,
                name: "vpn".to_owned(),
                user: Span::from_millis(10 * percent * at),
                tunnels: vec![interface.to_owned()],
                ..Task::default()
            });
        })
    }

    #[test]
    fn a_full_program_behind_the_connections_tunnel_is_the_limit() {
        let outcome = tunnel(97, "eth0").judge(cpu::RULE);
        let finding = outcome.finding().unwrap();
        assert!(finding.sentence.contains("vpn (process 50)"), "{finding:?}");
        assert!(finding.explains.is_some_and(|share| share > 0.9));
    }

    #[test]
    fn a_program_with_time_left_or_of_another_tunnel_is_no_limit() {
        tunnel(40, "eth0").holds_not(cpu::RULE);
        tunnel(97, "tun7").holds_not(cpu::RULE);
    }
}
