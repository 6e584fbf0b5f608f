//! Tests of the whole datapath against a reference implementation without caches.

mod datapath {
    mod agreement;
    mod bridge;
    mod caching;
    mod frames;
    mod groups;
    mod lengths;
    mod malformed;
    mod mpls;
    mod no_protocol;
    mod parsing;
    mod plain_frame;
    mod reference;
    mod steps;
    mod tracked;
    mod unfinished;
}
