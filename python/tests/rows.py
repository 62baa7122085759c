"""Rows of made-up tables."""


def flow(
    number: int, group: str, index: int, congestion: str, bps: float, loss: float, packet: int
) -> dict[str, object]:
    """A row of the table of flows that carries `bps` for 640 s."""
    packets = int(bps * 640 / 8 / packet)
    return {
        "flow": number,
        "group": group,
        "index": index,
        "transport": "tcp",
        "congestion": congestion,
        "sent_packets": packets,
        "early_responses": packets // 50 if congestion == "pert" else 0,
        "delivered_packets": packets,
        "delivered_bytes": packets * packet,
        "goodput_bps": packets * packet * 8 / 640,
        "loss_rate": loss,
    }
