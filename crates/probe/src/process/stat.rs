use units::{Span, Time};

use crate::clock;
use crate::error::{ProbeError, read_text};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub taken: Time,
    pub pid: u32,
    pub parent: u32,
    /// The name: at most 15 bytes, except for kernel workers and threads that set their name.
    pub name: String,
    /// `R`, `S`, `D`, `Z` (a zombie: ended, not yet reaped) and so on, see proc(5).
    pub state: char,
    pub threads: u64,
    pub in_kernel: bool,
    /// The core on which the process's first thread last ran.
    pub core: Option<usize>,
    /// Start time in ticks after boot. Distinguishes a process from a later process with the same
    /// ID.
    pub started: u64,
    /// CPU time of the process's threads, including ended threads.
    pub cpu: CpuTime,
    /// CPU time of children that ended and were waited for, and of their children.
    pub reaped: CpuTime,
}

impl Process {
    pub fn read(pid: u32) -> Result<Self, ProbeError> {
        let text = read_text(format!("/proc/{pid}/stat")).map_err(|error| ended(pid, error))?;
        let mut process = Self::parse(&text, clock::tick())?;
        process.taken = clock::now();
        process.cpu.precise = process_clock(process.pid);
        Ok(process)
    }

    pub fn own() -> Result<Self, ProbeError> {
        Self::read(std::process::id())
    }

    /// Parses a line of `/proc/PID/stat`; the threads' lines under `task/` have the same format.
    pub fn parse(text: &str, tick: Span) -> Result<Self, ProbeError> {
        let malformed =
            |what: &str| ProbeError::malformed("/proc/PID/stat", format!("{what} in {text:?}"));
        // The name may contain blanks and parentheses, so it ends at the last parenthesis.
        let (pid, rest) = text.split_once(" (").ok_or_else(|| malformed("no name"))?;
        let (name, rest) = rest.rsplit_once(") ").ok_or_else(|| malformed("no end of the name"))?;
        let columns: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Columns are numbered as in proc(5): the process ID is 1, and the state 3.
        let column = |number: usize| {
            columns
                .get(number - 3)
                .and_then(|word| word.parse::<u64>().ok())
                .ok_or_else(|| malformed(&format!("no number in column {number}")))
        };
        let time = |number| Ok::<_, ProbeError>(tick * column(number)?);
        Ok(Self {
            taken: Time::ZERO,
            pid: pid.trim().parse().map_err(|_| malformed("no process ID"))?,
            parent: u32::try_from(column(4)?).map_err(|_| malformed("odd parent"))?,
            name: name.to_owned(),
            state: columns
                .first()
                .and_then(|word| word.chars().next())
                .ok_or_else(|| malformed("no state"))?,
            threads: column(20)?,
            in_kernel: column(9)? & PF_KTHREAD != 0,
            core: column(39).ok().and_then(|core| usize::try_from(core).ok()),
            started: column(22)?,
            cpu: CpuTime { user: time(14)?, system: time(15)?, precise: None },
            reaped: CpuTime { user: time(16)?, system: time(17)?, precise: None },
        })
    }

    pub fn is_same_as(&self, other: &Self) -> bool {
        self.pid == other.pid && self.started == other.started
    }
}

/// The flag of kernel threads in `/proc/PID/stat`.
const PF_KTHREAD: u64 = 0x0020_0000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// User time in whole ticks.
    pub user: Span,
    /// System time in whole ticks.
    pub system: Span,
    /// The sum of user and system time in nanoseconds, if the kernel provides the sum.
    pub precise: Option<Span>,
}

impl CpuTime {
    /// Returns the sum of user and system time, as precisely as known.
    pub fn total(&self) -> Span {
        self.precise.unwrap_or(self.user + self.system)
    }

    pub fn since(&self, earlier: &Self) -> Self {
        // The kernel divides the total by sampled ticks and rescales it, so either part may
        // decrease (kernel/sched/cputime.c, cputime_adjust).
        Self {
            user: self.user - earlier.user,
            system: self.system - earlier.system,
            precise: self.precise.zip(earlier.precise).map(|(later, earlier)| later - earlier),
        }
    }

    pub fn plus(&self, other: &Self) -> Self {
        let precise = match (self.precise, other.precise) {
            (None, None) => None,
            _ => Some(self.total() + other.total()),
        };
        Self { user: self.user + other.user, system: self.system + other.system, precise }
    }
}

/// Converts an error: a missing file under `/proc/PID`, or ESRCH while reading it, means that the
/// process has ended.
pub(crate) fn ended(pid: u32, error: ProbeError) -> ProbeError {
    match error {
        ProbeError::Read { source, .. }
            if source.kind() == std::io::ErrorKind::NotFound
                || source.raw_os_error() == Some(libc::ESRCH) =>
        {
            ProbeError::Ended { pid }
        }
        other => other,
    }
}

fn process_clock(pid: u32) -> Option<Span> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).ok()?);
    let at = nix::time::ClockId::pid_cpu_clock_id(pid).and_then(|clock| clock.now()).ok()?;
    Some(std::time::Duration::from(at).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Span = Span::from_millis(10);

    #[test]
    fn a_process_name_may_contain_any_characters() {
        let rest = "S 7 1 1 0 -1 4194560 1 2 3 4 150 25 7 8 20 0 3 0 4711 8192 9";
        for name in ["nginx", "tmux: server", "a) R (b", "(sd-pam)", ""] {
            let process = Process::parse(&format!("42 ({name}) {rest}\n"), TICK).unwrap();
            assert_eq!((process.pid, process.parent, process.state), (42, 7, 'S'));
            assert_eq!(process.name, name);
            assert_eq!((process.threads, process.started), (3, 4711));
            assert_eq!(process.cpu.user, Span::from_millis(1500));
            assert_eq!(process.cpu.system, Span::from_millis(250));
            assert_eq!(process.reaped.total(), Span::from_millis(150));
        }
        for text in ["", "42", "42 (x", "42 (x) S 1", "x (y) S 1 2"] {
            assert!(Process::parse(text, TICK).is_err(), "{text:?}");
        }
    }

    #[test]
    fn cpu_time_in_nanoseconds_takes_precedence_over_ticks() {
        let coarse =
            CpuTime { user: Span::from_millis(10), system: Span::from_millis(10), precise: None };
        let fine = CpuTime { precise: Some(Span::from_micros(20_500)), ..coarse };
        assert_eq!(coarse.total(), Span::from_millis(20));
        assert_eq!(coarse.plus(&fine).total(), Span::from_micros(40_500));
        assert_eq!(fine.since(&coarse).precise, None);
    }

    #[test]
    fn a_missing_process_is_reported_as_ended() {
        // The ID is larger than any process ID (kernel/pid.c limits them to 2^22).
        assert!(matches!(Process::read(u32::MAX), Err(ProbeError::Ended { pid: u32::MAX })));
    }

    proptest! {
        #[test]
        fn the_parser_of_stat_lines_never_panics(text in "[0-9]{0,11} ?\\(?.{0,20}\\)? ?S?( -?[0-9]{1,21}){0,25}") {
            let _ = Process::parse(&text, TICK);
        }
    }
}
