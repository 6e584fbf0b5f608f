//! What the report looks like, from example data that no machine measured.

mod example_data;
mod text;
