// Reading a mapped file that has been truncated raises SIGBUS; the decoder's threads convert it to a status.
#pragma once
#include <csetjmp>

// During its lifetime, a SIGBUS in this thread jumps to `escape` with the value FAULT.
class FaultGuard {
  public:
    static constexpr int FAULT = 2;

    // Install the handler; faults in other code go to the previous handler.
    static void install();

    explicit FaultGuard(jmp_buf *escape);
    ~FaultGuard();
    FaultGuard(const FaultGuard &) = delete;
    FaultGuard &operator=(const FaultGuard &) = delete;
};
