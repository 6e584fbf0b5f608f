//! The counters of packet threads, as `dpif-netdev/pmd-perf-show` prints them.

/// The counters of all packet threads since they were cleared.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Counts {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Number of packets that no cache entry matched.
    pub(crate) upcalls: u64,
    /// Cycles for each packet: the mean of the threads, weighted by their packets. 0 if the threads
    /// got no packet.
    pub(crate) cycles: f64,
    /// Cycles for each packet by stage, if the switch counts stages.
    pub(crate) stages: Vec<(String, f64)>,
}

impl Counts {
    /// Parses the output of `dpif-netdev/pmd-perf-show`. Ignores unknown lines.
    pub(super) fn read(text: &str) -> Self {
        let mut sum = Self::default();
        for thread in text.split("pmd thread numa_id").skip(1) {
            sum.add(Self::of_thread(thread));
        }
        let received = sum.received.max(1) as f64;
        sum.cycles /= received;
        sum.stages.iter_mut().for_each(|(_, cycles)| *cycles /= received);
        sum
    }

    fn of_thread(text: &str) -> Self {
        let mut thread = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.trim().trim_start_matches("- ").split_once(':') else {
                continue;
            };
            let words: Vec<&str> = value.split_whitespace().collect();
            let number = words.first().and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
            match name.trim_end() {
                "Rx packets" => {
                    thread.received = number as u64;
                    // The number is the word before its unit: `5000  (100 Kpps, 250 cycles/pkt)`.
                    let place = words.iter().position(|word| word.starts_with("cycles/pkt"));
                    let cycles = place.and_then(|place| words.get(place.checked_sub(1)?));
                    thread.cycles = cycles.and_then(|word| word.parse().ok()).unwrap_or(0.0);
                }
                "Tx packets" => thread.sent = number as u64,
                "Upcalls" | "Lost upcalls" => thread.upcalls += number as u64,
                stage if STAGES.contains(&stage) => thread.stages.push((stage.to_owned(), number)),
                _ => {}
            }
        }
        thread
    }

    /// Adds a thread's counters. Cycles per packet become sums of cycles.
    fn add(&mut self, thread: Self) {
        let received = thread.received as f64;
        self.received += thread.received;
        self.sent += thread.sent;
        self.upcalls += thread.upcalls;
        self.cycles += thread.cycles * received;
        for (name, cycles) in thread.stages {
            match self.stages.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += cycles * received,
                None => self.stages.push((name, cycles * received)),
            }
        }
    }
}

/// The stages of a packet in `weir switch`.
const STAGES: [&str; 7] =
    ["receive", "parse", "cache", "classifier", "conntrack", "actions", "transmit"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_thread_counters_are_added_up() {
        let text = "Measurement duration: 1.0 s\n\npmd thread numa_id 0 core_id 0:\n\n  \
            Iterations:         12  (1.00 us/it)\n  - Used TSC cycles:  99  (100.0 % of total cycles)\n  \
            Rx packets:         3000  (3 Kpps, 200 cycles/pkt)\n  \
            - Upcalls:          5  (  0.0 %, 1.0 us/upcall)\n  - Lost upcalls:     1  (  0.0 %)\n  \
            Tx packets:         2900  (3 Kpps)\n  Tx batches:         90  (32.00 pkts/batch)\n  \
            Cycles per packet by stage:\n  - receive:          10.0\n  - parse:            20.0\n\
            pmd thread numa_id 0 core_id 1:\n  Rx packets:         1000  (1 Kpps, 600 cycles/pkt)\n  \
            Tx packets:         1000  (1 Kpps)\n  - receive:          10.0\n  - parse:            60.0\n";
        let counts = Counts::read(text);
        assert_eq!((counts.received, counts.sent, counts.upcalls), (4000, 3900, 6));
        assert_eq!(counts.cycles, 300.0);
        assert_eq!(counts.stages, [("receive".to_owned(), 10.0), ("parse".to_owned(), 30.0)]);
    }

    #[test]
    fn idle_threads_and_unknown_text_give_zero_counts() {
        let idle = "pmd thread numa_id 0 core_id 1:\n  Rx packets:                    0\n";
        assert_eq!(Counts::read(idle), Counts::default());
        assert_eq!(Counts::read("no such command"), Counts::default());
        let strange = "pmd thread numa_id: : :\nRx packets: x (y cycles/pkt)\ncycles/pkt: -";
        assert_eq!(Counts::read(strange).received, 0);
    }
}
