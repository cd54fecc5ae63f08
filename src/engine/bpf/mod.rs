//! bpf
mod asm;
mod btf;
mod collect;
mod kernel;
mod layout;
mod programs;
mod tracer;
