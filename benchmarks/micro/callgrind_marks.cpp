// Where callgrind begins to count and where it writes its counts, for Python:
// `benchmarks/instructions.py`.
#include <valgrind/callgrind.h>

extern "C" {
void begin() { CALLGRIND_START_INSTRUMENTATION; }
void end() {
  CALLGRIND_STOP_INSTRUMENTATION;
  CALLGRIND_DUMP_STATS;
}
}
