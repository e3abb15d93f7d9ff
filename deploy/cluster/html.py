"""What our HTML pages look like: they need nothing from anywhere."""

COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#787774", "#337ea9", "#cb912f")
STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;"
    "color:#222}table{border-collapse:collapse}td,th{padding:.2rem .7rem;text-align:right;"
    "border-bottom:1px solid #ddd}svg text{font:12px system-ui,sans-serif;fill:#222}"
    "code{background:#f4f4f4;padding:.1rem .3rem}h2{margin-top:2rem}"
)
