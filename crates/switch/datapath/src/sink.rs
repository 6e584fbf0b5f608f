use flow::request::PacketIn;
use flow::step::PortIndex;
use port::Frame;

/// Takes what leaves the datapath.
pub trait Sink {
    /// Frames for a port in their order. The datapath drops those that it finds in `frames`
    /// afterwards; a sink that keeps frames takes them out.
    fn transmit(&mut self, port: PortIndex, frames: &mut Vec<Frame>);

    /// A packet for a controller, already cut to the length that it asked for. `bridge` is the
    /// place of the controller's bridge if a patch port has brought the packet there.
    fn packet_in(&mut self, bridge: Option<u16>, packet: PacketIn);
}
