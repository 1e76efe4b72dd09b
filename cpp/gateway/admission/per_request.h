#pragma once

#include <vector>

#include "sim/ids.h"

namespace spillway::gateway {

/// What a policy remembers of each request in the system. Ids of requests that have left are given
/// to others: whoever admits a request sets its entry.
template <class T>
class PerRequest {
 public:
  T& operator[](sim::RequestId id) {
    if (id.index() >= entries_.size()) entries_.resize(id.index() + 1);
    return entries_[id.index()];
  }

 private:
  std::vector<T> entries_;
};

}  // namespace spillway::gateway
