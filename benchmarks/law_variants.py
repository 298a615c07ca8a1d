"""What can be left out of the law, and what each of it is there for; then its settings a little to either side."""

from __future__ import annotations

from dataclasses import dataclass

LAW = "tidegate"
HUGE = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The law with one thing changed."""

    name: str
    settings: str = ""
    """Of the policy, as people write them."""
    patch: str = ""
    """What is taken out of its code, by the name that `law_without` has for it."""
    at: str = "over2"
    """A scenario in which that changes something."""
    purpose: str = ""
    """What the ingredient is there for."""
    policy: str = LAW

    @property
    def spec(self) -> str:
        """The policy as people write it."""
        return f"{self.policy}:{self.settings}" if self.settings else self.policy


INGREDIENTS = (
    Variant(
        name="prefill budget P",
        patch="prefill",
        at="chunk512-2",
        purpose="Keeps the queue of prompts out of the engine, where nobody can choose or refuse any more. The forecast bounds it as well: "
        "see the row without both.",
    ),
    Variant(
        name="forecast refusal",
        patch="forecast",
        at="spikes5x",
        purpose="Says no at once to those who would wait in vain.",
    ),
    Variant(
        name="prefill budget and forecast refusal",
        patch="prefill and forecast",
        at="spikes5x",
        purpose="The two that guard TTFT.",
    ),
    Variant(
        name="limit L",
        policy="fixed_tokens",
        settings=f"limit_tokens={HUGE}",
        at="over2",
        purpose="Keeps TPOT.",
    ),
    Variant(
        name="set point under the SLO",
        settings="limit.set_point=1",
        purpose="Leaves room for what chance does to TPOT.",
    ),
    Variant(
        name="growth far from the edge",
        settings="limit.growth=0",
        at="capdrop",
        purpose="Finds capacity that has come back before anybody notices, where a mean request is small against the limit.",
    ),
    Variant(
        name="slow-start re-entry",
        settings="limit.reentry=0.999",
        at="restart",
        purpose="The same from very far below.",
    ),
    Variant(
        name="dead zone",
        settings="limit.dead_zone=0",
        purpose="Stops a little before the edge, so that chance crosses it less often.",
    ),
    Variant(
        name="soft landing",
        settings="limit.landing=0.001",
        at="6000-32b-2",
        purpose="Small steps near the edge; with the dead zone gone as well the loop would swing for ever.",
    ),
    Variant(
        name="lasting evidence holds growth",
        patch="lasting",
        purpose="After a cut only few and mostly short requests count: no growth before the cut's cause is gone.",
    ),
    Variant(
        name="one cut an epoch (the effect guard)",
        settings=f"limit.effect_margin={HUGE}",
        at="capdrop",
        purpose="A second cut before the first has drained would punish the same congestion twice.",
    ),
    Variant(
        name="TPOT of the whole answer",
        patch="whole answer",
        purpose="Judges a stream by what it will have come to, as its caller does, not by its last five seconds.",
    ),
    Variant(
        name="pace of all for young streams",
        patch="pace of all",
        purpose="A stream that has seen a few steps, one of them with a prompt in it, looks slow and is not.",
    ),
    Variant(
        name="standstill left out of the pace",
        patch="standstill",
        at="stall8",
        purpose="An engine that stood still for a while is not overloaded: cutting would only lengthen the way back.",
    ),
    Variant(
        name="cap for uneven members",
        patch="uneven",
        at="replicas4",
        purpose="A pool with one slow member is not throttled until that one is fast.",
    ),
    Variant(
        name="requests begun before the last cut do not count",
        patch="since the cut",
        at="partial",
        purpose="Where only ends are seen, whoever began before the cut tells of the time before it.",
    ),
    Variant(
        name="KV forecast",
        patch="KV forecast",
        at="kvreason2",
        purpose="Prevents preemption, which costs all that was computed.",
    ),
    Variant(
        name="KV watermark",
        settings="kv.enabled=false",
        at="outshift",
        purpose="Catches what the forecast got wrong: longer answers than ever, or work that did not pass us.",
    ),
    Variant(
        name="slots",
        patch="slots",
        at="slots32",
        purpose="Keeps the queue out of an engine whose sequences run out before its KV.",
    ),
    Variant(
        name="learned slots",
        patch="learned slots",
        at="slots32",
        purpose="The same for an engine that does not state how many it runs; these here do.",
    ),
    Variant(
        name="stall hold",
        patch="stall hold",
        at="header",
        purpose="Sends nobody into an engine that has stopped. Where prompts are long P closes by itself then; where they are so short "
        "that the floor of P holds many, this is what keeps them out.",
    ),
    Variant(
        name="large prompts by the rate of a cache miss",
        settings=f"prefill.large_tokens={HUGE}",
        at="large-prompts",
        purpose="A mean over hits and misses of the prefix cache tells nothing about a prompt of 60k tokens.",
    ),
    Variant(
        name="credit for what is read of a large prompt",
        patch="unread",
        at="large-prompts",
        purpose="Others need not wait for the whole of it to be over.",
    ),
    Variant(
        name="ration of prompts that miss their SLO anyhow",
        patch="ration",
        at="mooncake",
        purpose="They are served, one at a time, and not at the cost of all others.",
    ),
    Variant(
        name="outage",
        settings="recovery.errors=1000000000",
        at="restart",
        purpose="Sends nobody into an engine that is gone, and comes back in steps.",
    ),
    Variant(
        name="idle sink",
        settings="limit.idle_decay=0",
        at="spikes5x",
        purpose="A limit that nothing has tested for a while is a burst waiting to happen.",
    ),
    Variant(
        name="queue by deadline: in order of arrival",
        settings="classes.interactive.order=fifo",
        at="large-prompts",
        purpose="Where targets grow with the prompt, a short one need not wait for a long one that has time.",
    ),
)
"""Each is what is left out."""

NEIGHBOURS = (
    Variant(name="share .25", settings="prefill.share=0.25"),
    Variant(name="share .35", settings="prefill.share=0.35"),
    Variant(name="share 1", settings="prefill.share=1"),
    Variant(name="refuse_share 1", settings="prefill.refuse_share=1"),
    Variant(name="share and refuse_share 1", settings="prefill.share=1,prefill.refuse_share=1"),
    Variant(name="set_point .88", settings="limit.set_point=0.88"),
    Variant(name="set_point .96", settings="limit.set_point=0.96"),
    Variant(name="over_slo_share 1", settings="prefill.over_slo_share=1", at="mooncake"),
    *(
        Variant(name=f"order {order}", settings=f"classes.interactive.order={order}")
        for order in ("fit", "newest", "slack", "cost")
    ),
)

CHANCE = (
    Variant(name="a tick each 1.001 s", settings="tick_s=1.001"),
    Variant(name="a tick each 0.999 s", settings="tick_s=0.999"),
    Variant(name="a start at 32,500 tokens", settings="limit.initial_tokens=32500"),
)
"""Changes that mean nothing: how far others must go to be more than chance."""
