use crate::recording::FarEnd;
use perf::event::Ended;
use units::{Bytes, Share};

/// Returns the results that the far end reported.
pub(super) fn of(ended: &Ended, weir: bool) -> FarEnd {
    let mut far = FarEnd { weir, congestion: ended.remote_congestion.clone(), ..FarEnd::default() };
    if let Some(cpu) = &ended.remote_cpu {
        far.user = Share::from_percent(cpu.user.clamp(0.0, 100.0));
        far.system = Share::from_percent(cpu.system.clamp(0.0, 100.0));
        let busiest = cpu.cores.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
        far.busiest = busiest.and_then(|core| {
            let share = |percent: f64| Share::from_percent(percent.clamp(0.0, 100.0));
            Some((share(core.busy)?, share(core.softirq)?))
        });
        far.cores =
            (!cpu.cores.is_empty()).then(|| u32::try_from(cpu.cores.len()).unwrap_or(u32::MAX));
    }
    let theirs = ended.streams.iter().filter(|stream| !stream.sends);
    let received = ended.streams.iter().filter(|stream| stream.sends);
    let known = theirs
        .clone()
        .map(|stream| stream.sent)
        .chain(received.map(|stream| stream.received))
        .filter(|end| end.is_known());
    let bytes = known.fold(Bytes::ZERO, |sum, end| sum + end.bytes);
    far.bytes = (bytes > Bytes::ZERO).then_some(bytes);
    let again = theirs.clone().filter_map(|stream| stream.retransmits);
    far.retransmits = again.reduce(u64::saturating_add);
    if let Some(path) = theirs.filter_map(|stream| stream.path).next() {
        far.busy = path.busy;
        far.window_limited = path.rwnd_limited;
        far.buffer_limited = path.sndbuf_limited;
        far.mean_rtt = path.mean_rtt;
        far.min_rtt = path.min_rtt;
    }
    far
}
