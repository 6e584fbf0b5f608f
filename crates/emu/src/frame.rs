use port::Frame;
use units::Bytes;
use wire::caqm::Info;

/// A frame in the form that the link model uses.
#[derive(Debug, Clone)]
pub(crate) struct Carried(pub(crate) Frame);

impl link::Packet for Carried {
    fn size(&self) -> Bytes {
        self.0.size()
    }

    fn flow(&self) -> u64 {
        // Uses a fixed seed, because runs with equal settings must give equal hashes. The model's
        // random draws have another seed.
        self.0.flow(0)
    }

    fn ecn_capable(&self) -> bool {
        self.0.ecn_capable()
    }

    fn mark_congestion(&mut self) {
        self.0.mark_congestion();
    }

    fn corrupt(&mut self, random: u64) {
        self.0.corrupt(random);
    }

    fn caqm(&self, tpid: u16) -> Option<Info> {
        self.0.caqm(tpid)
    }

    fn set_caqm(&mut self, tpid: u16, info: Info) {
        self.0.set_caqm(tpid, info);
    }

    fn answer_caqm_offer(&mut self, tpid: u16) {
        self.0.answer_caqm_offer(tpid);
    }
}
