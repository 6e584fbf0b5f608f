use flow::request::PacketIn;
use flow::step::PortIndex;
use port::Frame;

/// The interface through which packets leave the datapath.
pub trait Sink {
    /// Sends frames to a port, in order. A sink takes the frames that it keeps out of `frames`; the
    /// datapath drops the other frames.
    fn transmit(&mut self, port: PortIndex, frames: &mut Vec<Frame>);

    /// Sends frames to an egress queue of a port. A sink without queues sends these frames like
    /// other frames.
    fn transmit_to_queue(&mut self, port: PortIndex, _queue: u32, frames: &mut Vec<Frame>) {
        self.transmit(port, frames);
    }

    /// Sends a packet to a controller. The packet is already truncated to the length that the
    /// controller asked for. `bridge`: the index of the controller's bridge if the packet reached
    /// the bridge through a patch port.
    fn packet_in(&mut self, bridge: Option<u16>, packet: PacketIn);
}
