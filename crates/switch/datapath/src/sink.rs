use flow::request::PacketIn;
use flow::step::PortIndex;
use port::Frame;

/// Takes what leaves the datapath.
pub trait Sink {
    /// Frames for a port in their order. The datapath drops those that it finds in `frames`
    /// afterwards; a sink that keeps frames takes them out.
    fn transmit(&mut self, port: PortIndex, frames: &mut Vec<Frame>);

    /// A packet for a controller, already cut to the length that it asked for.
    fn packet_in(&mut self, packet: PacketIn);
}
