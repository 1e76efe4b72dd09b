#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "instance/ingress/forwarding.h"
#include "instance/instance.h"
#include "signals/reported_source.h"
#include "signals/scrapes.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/request_states.h"

namespace spillway::instance {

/// An instance that may crash, hang and slow down, with the instance itself behind it. A request
/// that reaches it meanwhile fails, or is held: it then counts as running, and leaves at once if it
/// is withdrawn.
class Fallible final : public Forwarding {
 public:
  enum class State : std::uint8_t { up, down, loading, hung };

  /// `engine`: the first engine behind it.
  Fallible(std::unique_ptr<Instance> inner, sim::InstanceId id, std::uint32_t engine,
           const Environment& environment);

  State state() const { return state_; }
  /// As the telemetry sees it.
  signals::ReportedSource& reported() { return reported_; }

  // Each of these is called only in the states that it states.
  /// Not while it is down: all inside and all that is held fails.
  void lose_all(sim::Time now);
  /// While it is down: it is started again, and takes requests from `serve` on.
  void restart(sim::Time now);
  /// While it is loading: those that are held enter.
  void serve(sim::Time now);
  /// While it is up.
  void hang(sim::Time now);
  /// While it is hung: those that are held enter.
  void go_on(sim::Time now);
  /// The gateway knows that it is down, or no longer. What is held there fails.
  void set_known(bool is_known, sim::Time now);
  /// What becomes of a leg that reaches it.
  enum class Reception : std::uint8_t { enters, is_held, is_lost };
  [[nodiscard]] Reception receive(sim::RequestId id);
  /// A leg that is held leaves.
  void drop_held(sim::RequestId id) { std::erase_if(held_, HeldIs{id}); }
  /// A request that was lost here goes on at another instance.
  void note_migrated() { ++loss_.migrated; }
  /// What has been lost since the last call.
  Loss take_loss() { return std::exchange(loss_, {}); }

  void set_slowness(double factor, sim::Time now) override { inner().set_slowness(factor, now); }
  Loss lose_kv(bool cached_only, sim::Time now) override {
    return inner().lose_kv(cached_only, now);
  }
  Fallible* fallible() override { return this; }

  void enqueue(sim::RequestId id, std::size_t rank, sim::Time now) override;
  void cancel(sim::RequestId id, std::size_t rank, workload::Outcome outcome,
              sim::Time now) override;
  void admit_waiting(sim::Time now) override { inner().admit_waiting(now); }
  void expire(sim::Time now) override { inner().expire(now); }
  void close(sim::Time end) override;
  const Counters& counters() const override { return is_closed_ ? counters_ : inner().counters(); }
  const IngressCounts* ingress() const override { return inner().ingress(); }

 private:
  struct Held {
    sim::RequestId id;
    std::size_t rank = 0;
    bool is_leg = false;  // counts as in transit
  };
  struct HeldIs {
    sim::RequestId id;
    bool operator()(const Held& held) const { return held.id == id; }
  };
  bool refuses() const { return state_ == State::down && (is_known_ || !swallows_); }
  void fall_silent(sim::Time now);
  void report_again(sim::Time now);
  void lose(sim::RequestId id, sim::Time now);
  void end(sim::RequestId id, workload::Outcome outcome, sim::Time now);
  void fail_held(sim::Time now);
  void enter_held(sim::Time now);
  void delay_step(sim::Time now);

  sim::InstanceId id_;
  std::uint32_t engine_;
  bool swallows_;
  workload::RequestStates& states_;
  sim::EventQueue& events_;
  workload::RequestListener& listener_;
  LegListener* legs_;  // null without legs
  signals::Scrapes* scrapes_;
  signals::ReportedSource reported_;
  State state_ = State::up;
  bool is_known_ = false;
  std::vector<Held> held_;  // in order of arrival
  Loss loss_;
  bool is_closed_ = false;
  Counters counters_;  // once it is closed
};

}  // namespace spillway::instance
