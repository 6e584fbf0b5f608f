use super::{GroupUse, TaskUse, View, counted};
use crate::recording::{Connection, Tcp};
use units::{Bytes, Rate, Span};

/// The local endpoint of a flow: the flow's socket in every sample that lists the socket.
#[derive(Debug, Clone)]
pub struct End<'a> {
    pub all: Vec<(Span, &'a Connection)>,
}

impl<'a> End<'a> {
    pub fn first(&self) -> &'a Connection {
        self.all[0].1
    }

    pub fn last(&self) -> &'a Connection {
        self.all[self.all.len() - 1].1
    }

    pub fn elapsed(&self) -> Span {
        self.all[self.all.len() - 1].0 - self.all[0].0
    }

    pub fn tcp(&self) -> &'a Tcp {
        &self.last().tcp
    }

    /// Returns the increment of a count of bytes.
    pub fn bytes(&self, of: fn(&Tcp) -> Option<Bytes>) -> Option<Bytes> {
        let increment = counted(of(self.tcp())?.count(), of(&self.first().tcp)?.count())?;
        Some(Bytes::new(increment))
    }

    /// Returns the increment of a 32-bit counter.
    pub fn count(&self, of: fn(&Tcp) -> Option<u32>) -> Option<u64> {
        counted(of(self.tcp())?.into(), of(&self.first().tcp)?.into())
    }

    /// Returns the share of the time in which a clock of the kernel advanced.
    pub fn share(&self, of: fn(&Tcp) -> Option<Span>) -> Option<f64> {
        let spent = of(self.tcp())?.nanos().checked_sub(of(&self.first().tcp)?.nanos())?;
        let elapsed = self.elapsed().nanos();
        (elapsed > 0).then(|| (spent as f64 / elapsed as f64).min(1.0))
    }

    pub fn busy(&self) -> Option<f64> {
        self.share(|tcp| tcp.busy)
    }

    pub fn window_limited(&self) -> Option<f64> {
        self.share(|tcp| tcp.window_limited)
    }

    pub fn buffer_limited(&self) -> Option<f64> {
        self.share(|tcp| tcp.buffer_limited)
    }

    pub fn acked(&self) -> Option<Rate> {
        self.bytes(|tcp| tcp.bytes_acked).map(|bytes| self.rate(bytes))
    }

    pub fn received(&self) -> Option<Rate> {
        self.bytes(|tcp| tcp.bytes_received).map(|bytes| self.rate(bytes))
    }

    /// Returns the mean and the maximum size of the segments that this end sent.
    pub fn segments(&self) -> Option<(Bytes, Bytes)> {
        let acked = self.bytes(|tcp| tcp.bytes_acked)?.count();
        let sent = self.count(|tcp| tcp.data_segments_out).filter(|sent| *sent > 0)?;
        Some((Bytes::new(acked / sent), self.tcp().mss?))
    }

    /// Returns the share of data segments that were retransmitted and not spurious.
    pub fn loss(&self) -> Option<f64> {
        let sent = self.count(|tcp| tcp.data_segments_out)?;
        let again = self.count(|tcp| tcp.retransmitted)?;
        let spurious = self.spurious().unwrap_or(0);
        let lost = self.surely_lost(again, spurious);
        (sent > 0).then(|| (lost as f64 / sent as f64).min(1.0))
    }

    /// Returns the retransmissions of segments that had arrived, by the peer's duplicate SACKs.
    /// `None` if the reports count duplicates that the path makes.
    pub fn spurious(&self) -> Option<u64> {
        if self.gets_duplicates() { None } else { self.count(|tcp| tcp.spurious) }
    }

    /// Whether the path duplicates packets: since the connection began the peer has reported more
    /// duplicates than this end retransmitted (`tcp_dsack_seen`), and few segments overtook others.
    /// A report then does not show that a retransmission was spurious.
    pub fn gets_duplicates(&self) -> bool {
        let tcp = self.tcp();
        let overtakes = tcp.reordered.unwrap_or(0);
        tcp.spurious
            .zip(tcp.retransmitted)
            .is_some_and(|(twice, again)| twice > again && overtakes <= twice / FEW_OVERTAKE)
    }

    /// Returns the retransmissions that were needed, of `again` retransmissions. The peer reports a
    /// spurious retransmission a round trip later. If most retransmissions are spurious, the
    /// retransmissions of two round trips may only wait for their reports.
    pub fn surely_lost(&self, again: u64, spurious: u64) -> u64 {
        let needed = again.saturating_sub(spurious);
        if spurious <= needed {
            return needed;
        }
        let counted = self.count(|tcp| tcp.retransmitted).unwrap_or(0) as f64;
        let trips = self.elapsed().secs_f64() / self.rtt().unwrap_or_default().secs_f64().max(1e-9);
        let unreported = (counted * 2.0 / trips.max(1.0)).ceil() as u64;
        if needed <= unreported { 0 } else { needed }
    }

    /// Returns the share of data segments that were retransmitted since the connection began.
    pub fn loss_so_far(&self) -> Option<f64> {
        let tcp = &self.last().tcp;
        let (sent, again) = (tcp.data_segments_out?, tcp.retransmitted?);
        (sent > 0).then(|| (f64::from(again) / f64::from(sent)).min(1.0))
    }

    /// Returns the share of the samples in which the kernel held written data that it had not sent
    /// yet. `None` if no sample shows whether such data waits. Without such data neither a window
    /// nor the path holds the sender back.
    pub fn data_waits(&self) -> Option<f64> {
        let known = self.values(Connection::has_unsent);
        let waits = known.iter().filter(|waits| **waits).count();
        (!known.is_empty()).then(|| waits as f64 / known.len() as f64)
    }

    /// Returns the share of the samples in which at least the share `part` of the congestion window
    /// was in flight; `None` if no sample has the window and the data in flight. Lost packets count
    /// until they are acknowledged. A sender without pacing leaves a third of the window for its
    /// next burst (TSO deferral).
    pub fn fills_window(&self, part: f64) -> Option<f64> {
        let known = self.values(|c| c.tcp.unacked.zip(c.tcp.cwnd));
        let is_full =
            |(flying, window): &&(u32, u32)| f64::from(*flying) >= f64::from(*window) * part;
        let full = known.iter().filter(is_full).count();
        (!known.is_empty()).then(|| full as f64 / known.len() as f64)
    }

    /// Whether the congestion window of a long path is full and data waits for it: with more CPU
    /// time the kernel would send no earlier. A full core delays acknowledgements, and so lengthens
    /// the round trips.
    pub fn waits_for_window(&self) -> bool {
        let (Some(rtt), Some(least)) = (self.rtt(), self.tcp().min_rtt) else { return false };
        let mostly = |share: Option<f64>| share.is_some_and(|share| share >= MOSTLY);
        least >= LONG
            && rtt.nanos() / 3 * 2 <= least.nanos()
            && mostly(self.fills_window(BURST))
            && mostly(self.data_waits())
    }

    /// Whether something other than the application held the sender back in most of the samples.
    /// `true` if the samples do not show whether the sender was held back.
    pub fn has_data(&self) -> bool {
        self.data_waits().is_none_or(|waits| waits >= WAITS)
    }

    /// Whether the peer's application sends about as many segments as this end: each waits for the
    /// other.
    pub fn alternates(&self) -> bool {
        let out = self.count(|tcp| tcp.data_segments_out).unwrap_or(0);
        let back = self.count(|tcp| tcp.data_segments_in).unwrap_or(0);
        out > 0 && back * 3 >= out && back <= out.saturating_mul(4)
    }

    /// Whether this end waits for an answer: the peer has acknowledged all its data and has not
    /// answered, and no end sends data.
    pub fn is_left_waiting(&self) -> bool {
        let rests = |of: fn(&Tcp) -> Option<u32>| self.count(of) == Some(0);
        // If the peer has never sent data, this end sent the last data.
        let ties = self.tcp().bytes_received == Some(Bytes::ZERO);
        rests(|tcp| tcp.data_segments_out)
            && rests(|tcp| tcp.data_segments_in)
            && self.elapsed() >= LEFT
            && self.all.iter().all(|(_, connection)| connection.waits_for_answer(ties).is_some())
    }

    /// Whether bytes of many full segments arrived, in segments that were at least half full on
    /// average.
    pub fn has_passed_full(&self) -> bool {
        let tcp = self.tcp();
        let (Some(mss), Some(acked)) = (tcp.mss, tcp.bytes_acked) else { return false };
        let segments = tcp.data_segments_out.unwrap_or(0);
        let full = u64::from(segments).saturating_mul(mss.count());
        acked.count() >= mss.count().saturating_mul(PASSED) && acked.count() >= full / 2
    }

    /// Returns the value of `of` for each sample that has one.
    pub fn values<T>(&self, of: impl Fn(&'a Connection) -> Option<T>) -> Vec<T> {
        self.all.iter().filter_map(|(_, connection)| of(connection)).collect()
    }

    /// Returns the share of the samples for which `is` holds.
    pub fn often(&self, is: impl Fn(&Connection) -> bool) -> f64 {
        let times = self.all.iter().filter(|(_, connection)| is(connection)).count();
        times as f64 / self.all.len() as f64
    }

    pub fn median<T: Ord + Copy>(&self, of: impl Fn(&'a Connection) -> Option<T>) -> Option<T> {
        let mut values = self.values(of);
        values.sort_unstable();
        values.get(values.len() / 2).copied()
    }

    /// Returns the median smoothed round-trip time.
    pub fn rtt(&self) -> Option<Span> {
        self.median(|c| c.tcp.rtt.filter(|rtt| *rtt > Span::ZERO))
    }

    /// Returns the threads of the processes that hold the socket, the busiest first.
    pub fn tasks<'v>(&self, view: &'v View<'a>) -> Vec<&'v TaskUse<'a>> {
        let holders = &self.last().holders;
        let is_holder = |pid: u32| holders.iter().any(|holder| holder.pid == pid);
        view.tasks.iter().filter(|task| is_holder(task.pid)).collect()
    }

    pub fn pids(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.last().holders.iter().map(|holder| holder.pid)
    }

    pub fn busiest<'v>(&self, view: &'v View<'a>) -> Option<&'v TaskUse<'a>> {
        self.tasks(view).into_iter().next()
    }

    /// Returns the share of the time in which a thread of the process ran or waited for a core.
    /// With a small share the process had little to do.
    pub fn wants_cpu(&self, view: &View<'a>) -> f64 {
        let wants = |task: &&TaskUse<'_>| task.cpu + task.waited.unwrap_or(0.0);
        self.tasks(view).iter().map(wants).fold(0.0, f64::max).min(1.0)
    }

    /// Returns the most throttled control group of the processes that hold the socket.
    pub fn throttled<'v>(&self, view: &'v View<'a>) -> Option<&'v GroupUse<'a>> {
        let holders = &self.last().holders;
        view.groups
            .iter()
            .filter(|group| holders.iter().any(|holder| group.pids.contains(&holder.pid)))
            .filter(|group| group.throttled > 0)
            .max_by(|a, b| a.throttled_share().total_cmp(&b.throttled_share()))
    }

    /// Returns the process's name for a sentence.
    pub fn name(&self) -> String {
        match self.last().holders.first() {
            // A saved result has no number of the process.
            Some(holder) if holder.pid == 0 => holder.name.clone(),
            Some(holder) => format!("{} (process {})", holder.name, holder.pid),
            None => "a process that could not be seen".to_owned(),
        }
    }

    pub fn rate(&self, bytes: Bytes) -> Rate {
        let bits = bytes.count() as f64 * 8.0 / self.elapsed().secs_f64().max(1e-9);
        Rate::from_bits_per_second(bits as u64)
    }
}

/// Minimum share of the samples with unsent data. Half, because the kernel may send the data
/// between two samples.
const WAITS: f64 = 0.5;
const MOSTLY: f64 = 0.8;
/// Minimum number of reported duplicates for each reordering event if the path makes the
/// duplicates.
const FEW_OVERTAKE: u32 = 10;
/// Minimum amount of data that arrived, in full segments.
const PASSED: u64 = 20;
/// Shortest wait that counts as long: most programs answer sooner.
const LEFT: Span = Span::from_secs(1);
/// Minimum round trip of a long path: more than a full core adds to the round trip of a short path.
const LONG: Span = Span::from_millis(2);
/// The part of the window that is in flight while the kernel defers the next burst.
pub const BURST: f64 = 0.6;
