#include "fault.h"

#include <csignal>

namespace {

thread_local jmp_buf *escape_here = nullptr;
struct sigaction before;

void handle(int signal, siginfo_t *info, void *context) {
    if (escape_here) {
        longjmp(*escape_here, FaultGuard::FAULT);
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
    } else {
        sigaction(signal, &before, nullptr);    // the fault repeats on return, with its previous action
    }
}

}  // namespace

void FaultGuard::install() {
    struct sigaction now {}, ours {};
    ours.sa_sigaction = handle;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;       // jumping out of the handler must not block a signal
    sigaction(SIGBUS, nullptr, &now);
    if (now.sa_sigaction != handle) {
        before = now;
        sigaction(SIGBUS, &ours, nullptr);
    }
}

FaultGuard::FaultGuard(jmp_buf *escape) { escape_here = escape; }

FaultGuard::~FaultGuard() { escape_here = nullptr; }
