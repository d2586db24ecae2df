// A mapped file that is cut short while it is read raises SIGBUS; in the engine's threads that becomes a status.
#pragma once
#include <csetjmp>

// While it lives, a SIGBUS of this thread jumps to `escape`, with the value FAULT.
class FaultGuard {
  public:
    static constexpr int FAULT = 2;

    // Take over the signal; whoever handled it before keeps the faults of all other code.
    static void install();

    explicit FaultGuard(jmp_buf *escape);
    ~FaultGuard();
    FaultGuard(const FaultGuard &) = delete;
    FaultGuard &operator=(const FaultGuard &) = delete;
};
