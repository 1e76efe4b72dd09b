#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "sim/error.h"

namespace spillway::sim {

/// Lets one call at a time into an object. While a call is inside, every other one is refused,
/// whether it comes from the same thread, through a policy or a callback, or from another one.
class Exclusive {
 public:
  /// `what`: the object, for errors; `readable`: what can be read at any time; empty: nothing.
  Exclusive(std::string what, std::string readable)
      : what_(std::move(what)), readable_(std::move(readable)) {}

  /// Is inside for its lifetime.
  class Call {
   public:
    /// Throws UsageError if another call is inside.
    Call(Exclusive& of, std::string name) : of_(of) {
      const std::scoped_lock lock(of_.mutex_);
      if (!of_.inside_.empty()) of_.refuse(name);
      of_.inside_ = std::move(name);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
      const std::scoped_lock lock(of_.mutex_);
      of_.inside_.clear();
    }

   private:
    Exclusive& of_;
  };

  const std::string& what() const { return what_; }
  const std::string& readable() const { return readable_; }

 private:
  [[noreturn]] void refuse(const std::string& name) const {
    throw UsageError(name + ": the " + what_ + " is inside " + inside_ +
                     ", and takes no call of its policies, of callbacks or of other threads until "
                     "that returns" +
                     (readable_.empty() ? "" : "; only " + readable_ + " can be read meanwhile"));
  }

  std::string what_;
  std::string readable_;
  std::mutex mutex_;
  std::string inside_;  // name of the call; empty: none
};

}  // namespace spillway::sim
