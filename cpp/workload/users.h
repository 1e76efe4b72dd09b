#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/time.h"
#include "workload/arrivals/closed_loop.h"
#include "workload/lengths/lengths.h"
#include "workload/names.h"
#include "workload/requests.h"
#include "workload/synthetic.h"

namespace spillway::workload {

/// The users of a workload's closed-loop clients. Each has one request in the system at most; what
/// it is depends on the user and its ordinal alone, when it comes on what was served before.
class Users {
 public:
  Users(const Synthetic& config, std::uint64_t seed, std::int64_t quantum_ns);

  std::size_t size() const { return users_.size(); }
  /// When the user asks for the first time; kForever: never.
  sim::Time first(std::size_t user) const { return users_[user].next; }
  /// What the user asks at the instant announced. Its segments are valid until the user asks again.
  Arrival ask(std::size_t user);
  /// The user's request is over, after an answer of so many tokens. Returns when the next one
  /// comes; kForever: none.
  sim::Time answered(std::size_t user, std::int32_t tokens, sim::Time now);
  /// The same for a request that was not served. The next one never comes at the same instant.
  sim::Time refused(std::size_t user, sim::Time now);
  /// Which client of the workload the user belongs to.
  std::size_t client_of(std::size_t user) const { return sources_[users_[user].source].client; }

 private:
  struct Source {
    ClosedLoop loop;
    std::size_t client = 0;
    std::unique_ptr<LengthDistribution> input;
    std::unique_ptr<LengthDistribution> output;
    NamedClient named;
    sim::Time end{0};
    std::int64_t left = 0;  // requests that may yet be announced
    std::size_t first_user = 0;
  };
  struct User {
    std::size_t source = 0;
    std::uint64_t ordinal = 0;  // of its next request
    sim::Time next = sim::kForever;
    std::vector<Segment> conversation;  // ends with the latest question
  };

  std::uint64_t draw_of(std::size_t user) const;
  // When the user asks next, having begun to think at `now`, which takes at least so long.
  sim::Time announce(std::size_t user, sim::Time now, sim::Time least);

  std::uint64_t seed_;
  sim::Quantum quantum_;
  std::vector<Source> sources_;
  std::vector<User> users_;
};

/// Whether some client of the workload is in a closed loop.
bool has_users(const Synthetic& config);

}  // namespace spillway::workload
