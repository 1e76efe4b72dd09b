#pragma once

#include <atomic>
#include <cstddef>

namespace spillway::cluster {

/// Where a thread is among runs that contain each other: a policy of a run starts the next one.
struct Nesting {
  std::size_t depth = 0;                     ///< runs that the thread is inside
  std::atomic<bool>* was_refused = nullptr;  ///< whether one of them was too deep, if there are any
};

/// The place of this thread.
Nesting nesting();

/// Is inside a run for its lifetime. Each run takes room on the stack of its thread, so their depth
/// is bounded.
class InsideRun {
 public:
  static constexpr std::size_t kMostNested = 8;

  /// Throws NestingError if the run is too deep, or a run was since the outermost one began: a
  /// policy that catches the error does not try again for each of its requests.
  InsideRun();
  InsideRun(const InsideRun&) = delete;
  InsideRun& operator=(const InsideRun&) = delete;
  ~InsideRun();

 private:
  std::atomic<bool> was_refused_ = false;  // of the outermost
};

/// This thread works for another one for its lifetime: runs are nested in those of that thread,
/// which waits.
class WorkingFor {
 public:
  explicit WorkingFor(const Nesting& other);
  WorkingFor(const WorkingFor&) = delete;
  WorkingFor& operator=(const WorkingFor&) = delete;
  ~WorkingFor();

 private:
  Nesting before_;
};

}  // namespace spillway::cluster
