#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/time.h"
#include "workload/arrivals/closed_loop.h"
#include "workload/lengths/pair.h"
#include "workload/names.h"
#include "workload/requests.h"
#include "workload/synthetic.h"

namespace spillway::workload {

/// The users of a workload's closed-loop clients. Each has at most one request in the system. Its
/// content depends on the user and its ordinal alone; its arrival depends on what was served
/// before.
class Users {
 public:
  Users(const Synthetic& config, std::uint64_t seed, std::int64_t quantum_ns);

  std::size_t size() const { return users_.size(); }
  /// Arrival of the user's first request; kForever: none.
  sim::Time first(std::size_t user) const { return users_[user].next; }
  /// The user's request, at the announced time. Its segments are valid until the next call for this
  /// user.
  Arrival ask(std::size_t user);
  /// The user's request is complete with an output of `tokens`. Returns the arrival of the next
  /// one; kForever: none.
  sim::Time answered(std::size_t user, std::int32_t tokens, sim::Time now);
  /// The same for a request that was not served. The next one never arrives at the same instant.
  sim::Time refused(std::size_t user, sim::Time now);
  /// The client of the workload to which the user belongs.
  std::size_t client_of(std::size_t user) const { return sources_[users_[user].source].client; }

 private:
  struct Source {
    ClosedLoop loop;
    std::size_t client = 0;
    LengthPair lengths;
    std::int32_t max_tokens = 0;  // 0: none
    NamedClient named;
    sim::Time end{0};
    std::int64_t left = 0;  // requests that may still be announced
    std::size_t first_user = 0;
  };
  struct User {
    std::size_t source = 0;
    std::uint64_t ordinal = 0;  // of its next request
    sim::Time next = sim::kForever;
    std::vector<Segment> conversation;  // ends with the latest question
  };

  std::uint64_t draw_of(std::size_t user) const;
  // Arrival of the user's next request if it begins to think at `now` and thinks for at least
  // `least`.
  sim::Time announce(std::size_t user, sim::Time now, sim::Time least);

  std::uint64_t seed_;
  sim::Quantum quantum_;
  std::vector<Source> sources_;
  std::vector<User> users_;
};

/// Whether any client of the workload is in closed loop.
bool has_users(const Synthetic& config);

}  // namespace spillway::workload
