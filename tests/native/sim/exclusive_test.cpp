#include "sim/exclusive.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "sim/error.h"

namespace {

using spillway::sim::Exclusive;
using spillway::sim::UsageError;

void a_call_in_a_call_is_refused() {
  Exclusive door("door", "its color");
  {
    const Exclusive::Call outer(door, "open");
    for (int i = 0; i < 2; ++i) {
      try {
        const Exclusive::Call inner(door, "close");
        check(false, "two calls are inside");
      } catch (const UsageError& error) {
        const std::string text = error.what();
        check(text.starts_with("close: the door is inside open,"), text);
        check(text.ends_with("; only its color can be read meanwhile"), text);
      }
    }
  }
  const Exclusive::Call next(door, "close");
}

void of_several_threads_one_is_inside() {
  Exclusive door("door", "");
  std::atomic<int> inside = 0;
  std::atomic<int> entered = 0;
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5000; ++k) {
        try {
          const Exclusive::Call call(door, "open");
          check(++inside == 1, "alone");
          ++entered;
          --inside;
        } catch (const UsageError&) {
          ++refused;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  check(entered > 0 && entered + refused == 20000, "every call entered or was refused");
}

}  // namespace

CASES(a_call_in_a_call_is_refused, of_several_threads_one_is_inside);
