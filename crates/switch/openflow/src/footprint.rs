//! The memory that a change takes up.

use flow::action::{Action, Bundle, Controller, Ct, Learn, LearnSpec, Multipath, Sample};
use flow::port_number::PortNumber;
use flow::request::{Bucket, Change};

/// Returns the heap memory of a change in bytes, besides the size of [`Change`] itself.
pub(super) fn footprint(change: &Change) -> usize {
    match change {
        Change::Flow(change) => of_actions(&change.actions),
        Change::Group(change) => {
            let buckets = change.buckets.iter().map(|bucket| of_actions(&bucket.actions));
            change.buckets.capacity() * size_of::<Bucket>() + buckets.sum::<usize>()
        }
        Change::Port(_) => 0,
        Change::PacketOut(packet) => packet.frame.capacity() + of_actions(&packet.actions),
    }
}

fn of_actions(actions: &Vec<Action>) -> usize {
    actions.capacity() * size_of::<Action>() + actions.iter().map(of_action).sum::<usize>()
}

fn of_action(action: &Action) -> usize {
    match action {
        Action::Clone(nested) | Action::WriteActions(nested) => of_actions(nested),
        Action::Ct(ct) => size_of::<Ct>() + of_actions(&ct.exec),
        Action::Learn(learn) => {
            size_of::<Learn>() + learn.specs.capacity() * size_of::<LearnSpec>()
        }
        Action::Controller(controller) => size_of::<Controller>() + controller.userdata.capacity(),
        Action::Bundle(bundle) => {
            size_of::<Bundle>() + bundle.members.capacity() * size_of::<PortNumber>()
        }
        Action::Multipath(_) => size_of::<Multipath>(),
        Action::Sample(_) => size_of::<Sample>(),
        Action::Note(bytes) => bytes.capacity(),
        Action::DecTtl(controllers) => controllers.capacity() * size_of::<u16>(),
        _ => 0,
    }
}
