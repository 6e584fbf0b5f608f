//! A process has opened all descriptors that it may have: accept(2) and open(2) fail with EMFILE.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Holder;
use crate::view::View;

pub(super) const RULE: Rule = Rule::new("descriptors", "used-up file descriptors").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let last = view.last();
    let of_listeners = last.listeners.iter().flat_map(|listener| &listener.holders);
    let of_connections = last.connections.iter().flat_map(|connection| &connection.holders);
    let share = |holder: &Holder| {
        let most = holder.descriptors_most.filter(|most| *most > 0)?;
        Some(holder.descriptors? as f64 / most as f64)
    };
    let worst = of_listeners
        .chain(of_connections)
        .filter_map(|holder| Some((share(holder)?, holder)))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let Some((share, holder)) = worst else {
        return Outcome::not_seen("the open descriptors of the processes");
    };
    let (open, most) =
        (holder.descriptors.unwrap_or(0), holder.descriptors_most.unwrap_or_default());
    if share < NEAR {
        return Outcome::ruled_out(format!(
            "{} has {open} of {most} descriptors open",
            holder.name
        ));
    }
    let finding = Finding::new(format!(
        "file descriptors are used up: {} (process {}) has {open} of {most} open, and accepts no further connection",
        holder.name, holder.pid
    ))
    .seen_from("open descriptors", open.to_string(), most.to_string())
    .advise(
        Advice::new("Raise the limit of the process, and look for connections that it never closes")
            .run(format!("prlimit --pid {} --nofile=65536", holder.pid))
            .run("systemctl edit SERVICE   (LimitNOFILE=65536)")
            .run(format!("ls /proc/{}/fd | wc -l", holder.pid))
            .not("A longer accept queue only lets more clients wait"),
    );
    if open >= most { finding.limits() } else { finding }.holds()
}

const NEAR: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Listener;

    fn open(descriptors: u64) -> Sketch {
        Sketch::idle().each(move |_, sample| {
            let holder = Holder {
                pid: 9,
                name: "server".to_owned(),
                descriptors: Some(descriptors),
                descriptors_most: Some(100),
                ..Holder::default()
            };
            let local = "0.0.0.0:80".parse().unwrap();
            sample.listeners.push(Listener { local, holders: vec![holder], waiting: 5, limit: 4 });
        })
    }

    #[test]
    fn only_a_process_without_free_descriptors_is_a_limit() {
        assert!(open(100).holds_machine(RULE).is_some_and(|share| share > 0.8));
        assert_eq!(open(96).on_machine(RULE).finding().unwrap().explains, None);
        open(50).machine_holds_not(RULE);
        Sketch::idle().machine_holds_not(RULE);
    }
}
