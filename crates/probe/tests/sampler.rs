//! A sampler in another namespace than its caller.

#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc;

use nix::sched::{CloneFlags, setns};
use probe::ProbeError;
use probe::sampler::{
    CpuProbe, InterfaceProbe, KsoftirqdProbe, Probe, ProcessProbe, QdiscProbe, Sample, Sampler,
    SnmpProbe, SoftnetProbe, TcpProbe,
};
use probe::tcp::Filter;
use units::Span;

mod namespace;

#[test]
fn a_sampler_reads_the_namespace_that_it_entered() {
    namespace::run(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let inside = std::fs::File::open("/proc/thread-self/ns/net").unwrap();

        // Start the sampler from a thread outside the namespace.
        let (started, running) = mpsc::channel();
        let (tell, read) = mpsc::channel();
        let elsewhere = std::fs::File::open("/proc/self/ns/net").unwrap();
        std::thread::spawn(move || {
            setns(elsewhere, CloneFlags::CLONE_NEWNET).unwrap();
            let mut sampler = Sampler::every(Span::from_millis(5))
                .at_start(move || Ok(setns(inside, CloneFlags::CLONE_NEWNET)?))
                .probe(CpuProbe::over([0]))
                .probe(ProcessProbe::tree("self", std::process::id()).unwrap())
                .probe(TcpProbe::new(Filter::established()))
                .probe(QdiscProbe::new())
                .probe(InterfaceProbe::new())
                .probe(SoftnetProbe::new())
                .probe(SnmpProbe::new(["TcpRetransSegs", "NoSuchCounter"]));
            match KsoftirqdProbe::new() {
                Ok(probe) => sampler = sampler.probe(probe),
                Err(_) => testing::skip_part(testing::Need::KernelThreads),
            }
            sampler = sampler.probe(Telling(0, tell));
            started.send(sampler.start().unwrap()).unwrap();
        });
        let running = running.recv().unwrap();
        while read.recv().unwrap() < 3 {}
        let recording = running.stop().unwrap();
        assert_eq!(recording.failures, []);
        assert!(recording.samples >= 3);

        let cwnd = recording.find("cwnd_segments", &format!("{}>{}", ends.0, ends.1)).unwrap();
        assert!(cwnd.points.iter().all(|point| point.value > 0.0));
        let sockets = recording.series.iter().filter(|series| series.metric == "cwnd_segments");
        assert_eq!(sockets.count(), 2, "only the namespace's sockets must be counted");
        assert!(recording.find("interface_drops", "lo").is_some());
        assert!(recording.find("interface_drops", "eth0").is_none());
        assert!(recording.find("count", "TcpRetransSegs").is_some());
        assert!(recording.find("count", "NoSuchCounter").is_none());
        assert!(recording.find("cpu_percent", "self").is_some());
        assert!(recording.cpu_time > Span::ZERO);
    });
}

/// A probe that reports its number of readings to the test.
struct Telling(u64, mpsc::Sender<u64>);

impl Probe for Telling {
    fn name(&self) -> &str {
        "telling"
    }

    fn read(&mut self, _sample: &mut Sample<'_>) -> Result<(), ProbeError> {
        self.0 += 1;
        let _ = self.1.send(self.0);
        Ok(())
    }
}
