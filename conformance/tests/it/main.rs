//! Every check of the suites against our own node, over each way to reach it, and the document of what they found.

mod document;
