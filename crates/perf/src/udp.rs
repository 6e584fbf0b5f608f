//! UDP streams: the header of a datagram, the opening exchange, exact counting of what came.
