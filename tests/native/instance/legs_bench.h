#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "instance/instance.h"
#include "sim/event_queue.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

/// Requests through two pools of instances, in turn, with transfers of equal length: what
/// `tests/support/twins/pools.py` does with a link that has a latency alone.
class LegsBench final : spillway::workload::RequestListener, spillway::instance::LegListener {
 public:
  using Time = spillway::sim::Time;
  using Phase = spillway::sim::Phase;
  using RequestId = spillway::sim::RequestId;
  using Outcome = spillway::workload::Outcome;
  using Leg = spillway::instance::Leg;

  struct Setup {
    std::shared_ptr<const spillway::workload::Requests> requests;
    std::vector<spillway::workload::SloClass> classes;
    std::vector<spillway::instance::InstanceGroup> prefill;
    std::vector<spillway::instance::InstanceGroup> decode;
    std::vector<bool> is_remote;  ///< by request
    std::vector<Time> cancelled;  ///< by request; kForever: never
    Time transfer{1};
    bool takes_blocks_first = false;  ///< both legs are placed when the request is dispatched
  };

  struct Row {
    Outcome outcome = Outcome::in_transit;
    Time prefill_end = spillway::sim::kUnset;
    Time transfer_begin = spillway::sim::kUnset;
    Time transfer_end = spillway::sim::kUnset;
    Time first_token = spillway::sim::kUnset;
    Time finished = spillway::sim::kUnset;
    std::int64_t moved_blocks = 0;
    std::int64_t wasted_tokens = 0;
    std::int32_t preemptions = 0;

    bool operator==(const Row&) const = default;
  };

  LegsBench(const Setup& setup, bool reference)
      : setup_(setup),
        requests_(setup.requests, {}, setup.classes, {0}),
        events_(setup.prefill.size() + setup.decode.size()),
        jobs_(requests_.capacity()) {
    states_.resize(requests_.capacity());
    states_.token_gaps.resize(requests_.num_groups(), false);
    for (const auto* pool : {&setup.prefill, &setup.decode}) {
      for (const spillway::instance::InstanceGroup& group : *pool) {
        instances_.push_back(make(group, spillway::sim::InstanceId{instances_.size()},
                                  {.requests = requests_,
                                   .states = states_,
                                   .events = events_,
                                   .listener = *this,
                                   .reference = reference,
                                   .legs = this},
                                  engines_));
      }
    }
  }

  std::vector<Row> operator()() {
    for (std::uint32_t i = 0; i < jobs_.size(); ++i) {
      events_.push({requests_.arrival(RequestId{i}), Phase::source_arrival, 0, i});
      if (setup_.cancelled[i] != spillway::sim::kForever) {
        events_.push({setup_.cancelled[i], Phase::client_reaction, i, i});
      }
    }
    spillway::sim::Event event;
    while (events_.pop(spillway::sim::kForever, event)) {
      now_ = event.time();
      handle(event);
      for (const auto& instance : instances_) instance->check_memory();
    }
    std::vector<Row> rows;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      Row row = jobs_[i].row;
      row.outcome = jobs_[i].has_ended ? row.outcome : Outcome::running;
      row.first_token = states_.first_token[i];
      row.finished = states_.finished[i];
      row.preemptions = states_.preemptions[i];
      rows.push_back(row);
    }
    return rows;
  }

  spillway::instance::Instance& at(std::size_t i) { return *instances_[i]; }
  std::uint64_t events() const { return events_.popped(); }
  std::int64_t steps() const {
    std::int64_t all = 0;
    for (const auto& instance : instances_) all += instance->counters().steps;
    return all;
  }

 private:
  enum class Stage : std::uint8_t { transit, prefill, handoff, decode };
  struct Job {
    Row row;
    Stage stage = Stage::transit;
    std::size_t prefill = kNone;
    std::size_t decode = kNone;
    Leg next = Leg::whole;  // the leg on its way to its instance
    bool has_decode_leg = false;
    bool is_unread = false;
    bool is_moving = false;
    bool is_late = false;
    bool has_ended = false;
    int in_transit = 0;
  };
  static constexpr std::size_t kNone = ~std::size_t{0};

  void handle(const spillway::sim::Event& event) {
    const RequestId id{std::size_t{event.subject()}};
    switch (event.phase()) {
      case Phase::step_start:
        return engines_[event.subject()]->start_step(now_);
      case Phase::step_end:
        return engines_[event.subject()]->end_step(now_);
      case Phase::first_token:
        return transfer_ended(id);
      case Phase::client_reaction:
        return withdraw(id);
      case Phase::source_arrival:
        ++jobs_[id.index()].in_transit;
        return events_.push({now_, Phase::routing, 0, id.value});
      case Phase::routing:
        return route(id);
      case Phase::ingress:
        return enter(id, event.tie());
      default:
        return;
    }
  }

  std::size_t next_of(std::size_t& turn, std::size_t first, std::size_t count) {
    return first + turn++ % count;
  }
  void route(RequestId id) {
    Job& job = jobs_[id.index()];
    --job.in_transit;
    if (job.is_late && job.prefill != kNone) return end(id, Outcome::cancelled);
    const auto pick_decode = [&] {
      job.decode = next_of(decode_turn_, setup_.prefill.size(), setup_.decode.size());
    };
    if (!setup_.is_remote[id.index()]) {
      pick_decode();
      return send(id, Leg::whole, job.decode);
    }
    if (job.prefill != kNone) {
      pick_decode();
      return send(id, Leg::decode, job.decode);
    }
    job.prefill = next_of(prefill_turn_, 0, setup_.prefill.size());
    if (!setup_.takes_blocks_first) return send(id, Leg::prefill, job.prefill);
    pick_decode();
    send(id, Leg::decode, job.decode);
  }
  void send(RequestId id, Leg leg, std::size_t to) {
    Job& job = jobs_[id.index()];
    ++job.in_transit;
    job.next = leg;
    events_.push({now_ + instances_[to]->entry_delay(id), Phase::ingress,
                  static_cast<std::uint32_t>(to), id.value});
  }
  void enter(RequestId id, std::uint32_t to) {
    Job& job = jobs_[id.index()];
    --job.in_transit;
    if (job.is_late) return end(id, Outcome::cancelled);
    if (job.next == Leg::whole) {
      job.stage = Stage::decode;
      return instances_[to]->enqueue(id, 0, now_);
    }
    if (job.next == Leg::prefill) {
      job.stage = Stage::prefill;
    }
    auto& legs = *instances_[to]->legs();
    if (job.next == Leg::decode) job.has_decode_leg = legs.accepts(id, Leg::decode);
    legs.enqueue_leg(id, job.next, now_);
  }
  void prefill_ended(RequestId id) override {
    Job& job = jobs_[id.index()];
    job.row.prefill_end = now_;
    job.stage = Stage::handoff;
    job.is_unread = true;
    if (setup_.takes_blocks_first) return begin_transfer(id);
    ++job.in_transit;
    events_.push({now_, Phase::routing, 0, id.value});
  }
  void blocks_taken(RequestId id, std::int64_t missing) override {
    Job& job = jobs_[id.index()];
    job.row.moved_blocks = missing;
    if (!setup_.takes_blocks_first) return begin_transfer(id);
    send(id, Leg::prefill, job.prefill);
  }
  void seated(RequestId) override {}
  void lost(RequestId, instance::Leg) override {}
  bool tries_again(RequestId) override { return false; }
  void held_leg_enters(RequestId) override {}
  void held_leg_is_lost(RequestId) override {}
  void wasted(RequestId id, std::int64_t tokens) override {
    jobs_[id.index()].row.wasted_tokens += tokens;
  }
  void begin_transfer(RequestId id) {
    Job& job = jobs_[id.index()];
    job.row.transfer_begin = now_;
    job.is_moving = true;
    // Transfers of one instant end in the order in which they began.
    events_.push({now_ + setup_.transfer, Phase::first_token, 0, id.value});
  }
  void transfer_ended(RequestId id) {
    Job& job = jobs_[id.index()];
    if (!job.is_moving) return;
    job.is_moving = job.is_unread = job.has_decode_leg = false;
    job.row.transfer_end = now_;
    job.stage = Stage::decode;
    instances_[job.prefill]->legs()->release(id, true, now_);
    instances_[job.decode]->legs()->arrived(id, now_);
  }
  void withdraw(RequestId id) {
    Job& job = jobs_[id.index()];
    if (job.has_ended) return;
    if (job.stage == Stage::prefill || job.stage == Stage::decode) {
      const std::size_t at = job.stage == Stage::prefill ? job.prefill : job.decode;
      return instances_[at]->cancel(id, 0, Outcome::cancelled, now_);
    }
    if (job.in_transit > 0) {
      job.is_late = true;
    } else {
      end(id, Outcome::cancelled);
    }
  }
  void end(RequestId id, Outcome outcome) {
    Job& job = jobs_[id.index()];
    job.row.outcome = outcome;
    job.has_ended = true;
    job.is_moving = false;
    if (std::exchange(job.is_unread, false))
      instances_[job.prefill]->legs()->release(id, false, now_);
    if (std::exchange(job.has_decode_leg, false)) instances_[job.decode]->legs()->drop(id, now_);
  }
  void first_token(RequestId) override {}
  void finished(RequestId id) override { end(id, states_.outcome[id.index()]); }
  void released(RequestId) override {}

  const Setup& setup_;
  spillway::workload::RequestTable requests_;
  spillway::workload::RequestStates states_;
  spillway::sim::EventQueue events_;
  std::vector<Job> jobs_;
  std::vector<spillway::instance::Engine*> engines_;
  std::vector<std::unique_ptr<spillway::instance::Instance>> instances_;
  std::size_t prefill_turn_ = 0;
  std::size_t decode_turn_ = 0;
  Time now_{0};
};
