//! Readings of real processes and threads.

#![allow(clippy::unwrap_used)]

use std::process::{Child, Command, Stdio};

use probe::ProbeError;
use probe::process::{Process, Processes, Thread};
use units::Span;

#[test]
fn the_cpu_time_of_a_child_is_counted_while_it_runs_and_after_its_end() {
    let earlier = Processes::tree(std::process::id()).unwrap();
    let child = burner();
    let pid = child.id();
    let burnt = until_used(pid, Span::from_millis(50));

    let running = Processes::tree(std::process::id()).unwrap();
    let spent = running.since(&earlier);
    assert!(spent.started.contains(&pid));
    assert!(spent.each[&pid].cpu.total() >= burnt);

    let mut child = child;
    child.kill().unwrap();
    let zombie = loop {
        let process = Process::read(pid).unwrap();
        if process.state == 'Z' {
            break process;
        }
        std::thread::yield_now();
    };
    assert!(zombie.cpu.total() >= burnt, "{zombie:?}");
    stop(child);
    assert!(matches!(Process::read(pid), Err(ProbeError::Ended { .. })));
    let later = Processes::tree(std::process::id()).unwrap();
    let spent = later.since(&earlier);
    assert!(spent.sum().total() >= burnt - TICK * 2, "{spent:?}");
    let spent = later.since(&running);
    assert!(spent.ended.iter().any(|ended| ended.pid == pid));
    assert!(!spent.each.contains_key(&pid));
}

#[test]
fn a_listed_process_that_has_ended_is_reported_as_ended() {
    let child = burner();
    let pid = child.id();
    let earlier = Processes::of([pid, std::process::id()]).unwrap();
    stop(child);
    let spent = earlier.again().unwrap().since(&earlier);
    assert_eq!(spent.ended.len(), 1);
    assert_eq!(spent.ended[0].pid, pid);
    assert_eq!(spent.each.len(), 1, "the other process must still be reported");
}

#[test]
fn a_thread_measures_its_own_cpu_time() {
    let earlier = Thread::own().unwrap();
    until_used_by(|| Thread::own().unwrap().cpu.total(), Span::from_millis(20));
    let spent = Thread::own().unwrap().since(&earlier).unwrap();
    assert!(spent.cpu.total() >= Span::from_millis(20));
    let own = probe::clock::own_thread_cpu_time();
    assert!(
        Process::own().unwrap().cpu.total() >= own,
        "the process must have used at least the time of its thread"
    );
}

fn burner() -> Child {
    let mut child = Command::new("sh")
        .args(["-c", "echo started; while :; do :; done"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_output(&mut child);
    child
}

/// Waits for the child's first output: before it, the child may not have executed the program yet.
fn wait_for_output(child: &mut Child) {
    use std::io::Read;
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
}

fn until_used(pid: u32, enough: Span) -> Span {
    until_used_by(|| Process::read(pid).unwrap().cpu.total(), enough)
}

fn until_used_by(used: impl Fn() -> Span, enough: Span) -> Span {
    let start = used();
    loop {
        let now = used();
        if now - start >= enough {
            return now;
        }
        std::thread::yield_now();
    }
}

fn stop(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

const TICK: Span = Span::from_millis(10);
