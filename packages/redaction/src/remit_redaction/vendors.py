"""The formats of vendors' keys: prefix, characters and length.

A row is a vendor, the prefixes of its keys, the rest of the key, and the source of the fact. The rest is written as
parts: a letter for the alphabet and a length (`32`, `20-24`, `20+`), or a literal after an apostrophe. Parts before `@`
come before the fixed text. Formats are facts; no pattern was copied from others.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

ALPHABETS: Mapping[str, str] = {
    "d": "0-9",
    "h": "0-9a-f",
    "H": "0-9a-fA-F",
    "l": "0-9a-z",
    "U": "0-9A-Z",
    "B": "2-7A-Z",
    "a": "0-9A-Za-z",
    "L": "A-Za-z",
    "w": "0-9A-Za-z_",
    "u": "0-9A-Za-z_-",
    "e": "0-9A-Za-z_=-",
    "x": "0-9A-Za-z._=-",
    "b": "0-9A-Za-z+/=",
    "c": "0-9A-Za-z+/=_-",
    "t": "0-9A-Za-z_~.-",
}

_UUID = "H8 '- H4 '- H4 '- H4 '- H12"

# gl: a rule of gitleaks. th: a detector of TruffleHog. gh: a secret type in GitHub's list of secret scanning patterns.
# Otherwise: the vendor's documentation, with the vendor's own term.
VENDORS: tuple[tuple[str, str, str, str], ...] = (
    ("1Password service account", "ops_eyJ", "c100+", "gl 1password-service-account-token"),
    ("1Password secret key", "A3-", "U6 '- U6-11 '- U5 '- U5 '- U5", "gl 1password-secret-key"),
    ("1Password secret key, in parts", "A3-", "U6 '- U6 '- U5 '- U5 '- U5 '- U5", "gl 1password-secret-key"),
    ("Adafruit IO", "aio_", "a28", "th adafruitio"),
    ("Adobe", "p8e-", "a32", "gl adobe-client-secret"),
    ("age", "AGE-SECRET-KEY-1", "U50+", "gl age-secret-key"),
    ("Aikido", "AIK_CI_ AIK_SECRET_ AIK_", "a20+", "gh aikido_ci_scanning_token"),
    ("Airtable personal token", "pat", "a14 '. h64", "gl airtable-personnal-access-token"),
    ("Aiven", "AVNS_", "u16+", "gh aiven_service_password"),
    ("Alchemy", "alcht_", "a30", "th alchemy"),
    ("Alibaba Cloud", "LTAI", "a12-24", "gl alibaba-access-key-id"),
    ("Amazon AWS access key", "AKIA ASIA ABIA ACCA AROA AIDA AGPA ANPA ANVA", "B16", "gl aws-access-token"),
    ("Amazon AWS access key, old", "A3T", "U17", "gl aws-access-token"),
    ("Amazon Bedrock, long-lived", "ABSK", "b100+", "gl aws-amazon-bedrock-api-key-long-lived"),
    ("Amazon Bedrock, short-lived", "bedrock-api-key-", "c20+", "gl aws-amazon-bedrock-api-key-short-lived"),
    ("Amazon MWS", "amzn.mws.", _UUID, "GitHub: secret type amazon_mws_auth_token of older lists"),
    ("Amazon Login", "amzn1.oa2-cs.v1.", "h64", "gh amazon_oauth_client_secret"),
    ("Anthropic", "sk-ant-", "u16+", "gl anthropic-api-key"),
    ("Anyscale", "esecret_", "l28", "Anyscale docs: API keys"),
    ("Apify", "apify_api_", "a20+", "th apify"),
    ("Artifactory API key", "AKCp", "a69", "gl artifactory-api-key"),
    ("Artifactory reference token", "cmVmdGtu cmVmd", "a50+", "gl artifactory-reference-token"),
    ("Asaas", "$aact_", "c40+", "gh asaas_api_token"),
    ("Asana", "0/ 1/ 2/", "d13+ ': H32", "gh asana_personal_access_token"),
    ("Asana, new", "2/", "d13+ '/ d13+ ': H32", "th asanapersonalaccesstoken"),
    ("Atlassian", "ATATT3xFf ATCTT3xFf ATSTT3xFf ATBB ATOA", "c24+", "gh atlassian_api_token"),
    (
        "Authress",
        "sc_ ext_ scauth_ authress_",
        "a5-30 '. a4-6 '. 'acc u10-36 '. c30-200",
        "gl authress-service-client-access-key",
    ),
    ("Axiom", "xaat- xapt-", _UUID, "Axiom docs: API tokens"),
    ("Azure storage", "AccountKey= SharedAccessKey=", "b40+", "gh azure_storage_account_key"),
    ("Azure identifiable key", "JQQJ99", "a20+", "gh azure_ai_services_key"),
    ("Azure storage, identifiable", "+ASt", "b76 @ a6 '==", "gh azure_storage_account_key"),
    ("Azure Cosmos DB", "ACDb", "b76 @ a6 '==", "gh azure_cosmosdb_key_identifiable"),
    ("Azure Batch", "+ABa", "b76 @ a6 '==", "gh azure_batch_key_identifiable"),
    ("Azure registry", "+ACR", "b42 @ a6", "th azurecontainerregistry"),
    ("Azure Functions", "AzFu", "u44 @ a6 '==", "gh azure_function_key"),
    ("Azure Search", "AzSe", "a42 @ a6", "gh azure_search_admin_key"),
    ("Azure Entra ID", "0Q~ 1Q~ 2Q~ 3Q~ 4Q~ 5Q~ 6Q~ 7Q~ 8Q~ 9Q~", "t3 @ t31-34", "gl azure-ad-client-secret"),
    ("Bannerbear", "bb_pr_ bb_ma_", "h30", "th bannerbear"),
    ("Baseten", "baseten_", "a8 '. a32", "Baseten docs: API keys"),
    ("Bitbucket Data Center", "BBDC-", "c40-50", "th bitbucketdatacenter"),
    ("Braintree", "access_token$production$ access_token$sandbox$", "l16 '$ h32", "PayPal Braintree: access tokens"),
    ("Braintrust", "sk-bt- bt-st-", "a40+", "th braintrust"),
    ("Brevo", "xkeysib- xsmtpsib-", "h64 '- a16", "gl sendinblue-api-token"),
    ("Brex", "bxt_", "a36", "Brex developer docs: user tokens"),
    ("Buildkite", "bkua_ bkat_ bkct_ bkaj_ bkpt_", "a32+", "th buildkite"),
    ("Canva", "cnvca", "u40+", "gh canva_connect_api_secret"),
    ("Cerebras", "csk-", "l40+", "Cerebras docs: API key"),
    ("CircleCI", "CCIPAT_ CCIPRJ_", "a22 '_ H40", "th circleci"),
    ("ClickHouse Cloud", "4b1d", "a38", "gl clickhouse-cloud-api-secret-key"),
    ("ClickUp", "pk_", "d6-9 '_ U32", "th clickuppersonaltoken"),
    ("Clojars", "CLOJARS_", "l60", "gl clojars-api-token"),
    ("Close", "api_", "a22 '. a22", "th closecrm"),
    ("Cloudflare", "cfut_ cfat_ cfk_", "a40 h8", "th cloudflareapitoken"),
    ("Cloudflare Origin CA", "v1.0-", "h24 '- h100+", "gl cloudflare-origin-ca-key"),
    ("Cloudinary", "cloudinary://", "d10-18 ': u20+", "th cloudinary"),
    ("Contentful personal token", "CFPAT-", "u43", "th contentfulpersonalaccesstoken"),
    ("Contentstack", "blt", "h16-24", "gh contentstack_management_token"),
    ("crates.io", "cio", "a32", "gh cratesio_api_token"),
    ("Databricks", "dapi dose dkea", "h32", "gl databricks-api-token"),
    ("Defined Networking", "dnkey-", "e26 '- e52", "gl defined-networking-api-token"),
    ("Deno Deploy", "ddp_ ddw_ ddo_", "a36", "th deno"),
    ("DevCycle", "dvc_server_ dvc_client_ dvc_mobile_", "u20+", "gh devcycle_server_api_key"),
    ("DigitalOcean", "dop_v1_ doo_v1_ dor_v1_", "h40+", "gl digitalocean-pat"),
    ("DigitalOcean Spaces", "DO00", "U16", "DigitalOcean docs: Spaces keys"),
    ("Discord bot", "MD MT Mj Mz ND NT Nj Nz OD OT Oj Oz", "u22-28 '. u6 '. u27-40", "th discordbottoken"),
    (
        "Discord webhook",
        "discord.com/api/webhooks/ discordapp.com/api/webhooks/",
        "d17-20 '/ u60-80",
        "th discordwebhook",
    ),
    ("Docker Hub", "dckr_pat_ dckr_oat_", "u27-40", "th dockerhub"),
    ("Doppler", "dp.ct. dp.pt. dp.sa. dp.scim. dp.audit. dp.said.", "a40-44", "gl doppler-api-token"),
    ("Doppler service", "dp.st.", "x40-90", "th doppler"),
    ("Dropbox, short-lived", "sl.u. sl.", "u100+", "gl dropbox-short-lived-api-token"),
    ("Duffel", "duffel_live_ duffel_test_", "e43", "gl duffel-api-token"),
    (
        "Dynatrace",
        "dt0c01. dt0s01. dt0s02. dt0s03. dt0s04. dt0s06. dt0s08. dt0s09. dt0s16.",
        "a8-24 '. a64",
        "gl dynatrace-api-token",
    ),
    ("EasyPost", "EZAK EZTK", "a54", "gl easypost-api-token"),
    ("ElevenLabs", "sk_", "h48", "th elevenlabs"),
    ("Endor Labs", "endr+", "u16", "th endorlabs"),
    ("Expo", "expo_", "u32+", "Expo docs: access tokens"),
    ("Facebook", "EAAC EAAM EAAG EAAB EAAH EAAE EAAJ", "a80+", "gl facebook-page-access-token"),
    ("Figma", "figd_ figp_ figu_ figo_ figor_ figoh_", "e30+", "th figmapersonalaccesstoken"),
    ("Fireworks", "fw_", "a22-40", "Fireworks docs: API keys"),
    ("Firecrawl", "fc-", "h32", "Firecrawl docs: API key"),
    ("Fleetbase", "flb_live_ flb_test_", "a20", "th fleetbase"),
    ("Flexport", "shltm_", "u40", "th flexport"),
    ("Flutterwave", "FLWSECK_TEST- FLWPUBK_TEST- FLWSECK- FLWPUBK-", "l32 '-X", "gl flutterwave-secret-key"),
    ("Flutterwave encryption", "FLWSECK_TEST FLWSECK_TEST- FLWSECK-", "l12-24", "gl flutterwave-encryption-key"),
    ("Fly.io", "fo1_", "u43", "gl flyio-access-token"),
    ("Fly.io macaroon", "fm1r_ fm1a_ fm2_", "b80+", "gl flyio-access-token"),
    ("Frame.io", "fio-u-", "e64", "gl frameio-api-token"),
    ("FullStory", "na1. eu1.", "b100+", "th fullstory"),
    ("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", "a30+", "gl github-pat"),
    ("GitHub fine-grained", "github_pat_", "w22+", "gl github-fine-grained-pat"),
    (
        "GitLab",
        "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glimt- glagent- gloas- glsoat- glffct- glwt-",
        "x20+",
        "gl gitlab-pat",
    ),
    ("GitLab runner registration", "GR1348941", "u20", "gl gitlab-rrt"),
    ("GoCardless", "live_ sandbox_", "e40", "gl gocardless-api-token"),
    ("Google API key", "AIza", "u30+", "gl gcp-api-key"),
    ("Google OAuth access token", "ya29.", "u20+", "th googleoauth2"),
    ("Google OAuth refresh token", "1//0", "u35+", "gh google_oauth_refresh_token"),
    ("Google OAuth secret", "GOCSPX-", "u20+", "gh google_oauth_client_secret"),
    ("Google Cloud storage HMAC", "GOOG1E GOOG", "U20-60", "gh google_cloud_storage_access_key_id"),
    ("Google Gemini authorization key", "AQ.Ab8RN6", "u30+", "Google AI docs: auth keys"),
    ("Grafana key", "eyJrIjoi", "b60+", "gl grafana-api-key"),
    ("Grafana Cloud", "glc_", "b32+", "gl grafana-cloud-api-token"),
    ("Grafana service account", "glsa_", "a32 '_ H8", "gl grafana-service-account-token"),
    ("Groq", "gsk_", "a30+", "th groq"),
    ("Harness", "pat. sat.", "u22 '. a24 '. a20", "gl harness-api-key"),
    ("Heroku", "HRKU-", "u36+", "gl heroku-api-key-v2"),
    ("HubSpot private app", "pat-na1- pat-na2- pat-eu1- pat-ap1-", _UUID, "th hubspot_apikey"),
    ("Hugging Face", "hf_ api_org_", "a30+", "gl huggingface-access-token"),
    ("Infracost", "ico-", "a32", "gl infracost-api-token"),
    ("Intra42", "s-s4t2ud- s-s4t2af- u-s4t2ud- u-s4t2af-", "h64", "gl intra42-client-secret"),
    ("Intercom", "dG9rOg", "b40+", "Intercom developer docs: access tokens"),
    ("Ionic", "ion_", "a40+", "gh ionic_personal_access_token"),
    ("Jina", "jina_", "u40+", "Jina docs: API key"),
    ("Klaviyo", "pk_", "a6 '_ h34", "th klaviyo"),
    ("Klaviyo, old", "pk_", "h34", "th klaviyo"),
    ("Langfuse", "sk-lf- pk-lf-", _UUID, "th langfuse"),
    ("LangSmith", "lsv2_pt_ lsv2_sk_", "h32 '_ h10", "th langsmith"),
    ("LaunchDarkly", "api- sdk- mob-", _UUID, "th launchdarkly"),
    ("Lightspeed", "lsxs_pt_", "a30+", "gh lightspeed_xs_pat"),
    ("Linear", "lin_api_ lin_oauth_", "a30+", "gl linear-api-key"),
    ("Lob", "live_ test_", "h35", "gl lob-api-key"),
    ("Lob, public", "live_pub_ test_pub_", "h31", "gl lob-pub-api-key"),
    ("Logfire", "pylf_v1_us_ pylf_v1_eu_ pylf_v2_us_ pylf_v2_eu_ pylf_", "a40+", "Pydantic Logfire docs: write tokens"),
    ("Mailchimp", "-us1 -us2 -us3 -us4 -us5 -us6 -us7 -us8 -us9", "h32 @ d0-1", "gl mailchimp-api-key"),
    ("Mandrill", "md-", "u22", "gh mandrill_api"),
    ("MailerSend", "mlsn.", "h64", "gh mailersend_smtp_password"),
    ("Mailgun", "key- pubkey-", "h32", "gl mailgun-private-api-token"),
    ("Mapbox", "pk.eyJ1 sk.eyJ1 tk.eyJ1", "u40+ '. u20+", "gl mapbox-api-token"),
    ("MaxMind", "_mmk", "w36 @", "gl maxmind-license-key"),
    ("Mergify", "mka_ mergify_application_key_", "u30+", "gh mergify_application_key"),
    (
        "Microsoft Teams webhook",
        ".webhook.office.com/webhookb2/",
        f"{_UUID} '@ {_UUID} '/IncomingWebhook/ h32 '/ {_UUID}",
        "gl microsoft-teams-webhook",
    ),
    ("Midtrans", "Mid-server- Mid-client- SB-Mid-server-", "u20+", "gh midtrans_production_server_key"),
    ("MongoDB Atlas", "mdb_sa_sk_ mdb_sa_id_", "u24+", "gh mongodb_atlas_service_account_secret"),
    ("Netlify", "nfp_ nfo_ nfu_ nfc_ nfb_", "a36", "th netlify"),
    ("New Relic", "NRAK- NRII- NRIQ- NRBR- NRJS- NRSP- NRRA-", "u19+", "gl new-relic-user-api-key"),
    ("New Relic licence", "FFFFNRAL NRAL", "l28-40 @", "th newreliclicensekey"),
    ("New Relic mobile", "-NRMA", "a42 @", "th newrelicmobileapptoken"),
    ("Nightfall", "NF-", "a32", "th nightfall"),
    ("Notion", "ntn_", "a40+", "gl notion-api-token"),
    ("Notion, old", "secret_", "a43", "th notion"),
    ("npm", "npm_", "a30+", "gl npm-access-token"),
    ("NuGet", "oy2", "l43", "gh nuget_api_key"),
    ("NVIDIA", "nvapi-", "u60+", "th nvapi"),
    ("Octopus Deploy", "API-", "U25-32", "gl octopus-deploy-api-key"),
    ("Okta", "00", "u40", "gl okta-access-token"),
    (
        "Onfido",
        "api_live. api_sandbox. api_live_us. api_live_ca. api_sandbox_us. api_sandbox_ca.",
        "u11 '. u32",
        "gh onfido_live_api_token",
    ),
    ("OpenAI", "sk-proj- sk-svcacct- sk-admin- sk-service- sk-None-", "u20+", "gl openai-api-key"),
    ("OpenAI, older; DeepSeek, Moonshot, DashScope", "sk-", "a20+", "gl openai-api-key; th deepseek"),
    ("OpenRouter", "sk-or-v1-", "h32+", "th openrouter"),
    ("OpenShift", "sha256~", "u43", "gl openshift-user-token"),
    ("PagerDuty", "u+", "c18", "th pagerdutyapikey"),
    ("Pagar.me", "ak_live_ ek_live_", "a30", "th pagarme"),
    ("Paddle", "pdl_live_apikey_ pdl_sdbx_apikey_ pdl_ntfset_", "w26+", "gh paddle_api_key"),
    ("Perplexity", "pplx-", "a40+", "gl perplexity-api-key"),
    ("Persona", "persona_production_ persona_sandbox_", _UUID, "gh persona_production_api_key"),
    ("Pinecone", "pcsk_", "a5-6 '_ a60-66", "th pinecone"),
    ("Pinterest", "pina_", "a30+", "gh pinterest_access_token"),
    ("Plaid", "access-sandbox- access-development- access-production-", _UUID, "gl plaid-api-token"),
    ("PlanetScale", "pscale_tkn_ pscale_oauth_ pscale_pw_", "x32-64", "gl planetscale-api-token"),
    ("Polar", "polar_oat_ polar_pat_ polar_at_u_ polar_rt_u_ polar_cs_", "a32+", "gh polar_access_token"),
    ("Portainer", "ptr_", "b40+", "th portainertoken"),
    ("PostHog", "phc_ phx_ phs_ pha_ phr_", "w40+", "th posthog"),
    ("Postman", "PMAK-", "h24 '- h34", "gl postman-api-token"),
    ("Postman collection", "PMAT-", "U26", "gh postman_collection_key"),
    ("Prefect", "pnu_ pnb_", "a36", "gl prefect-api-token"),
    ("Proctorio", "CSK_ CPK_", "a30+", "gh proctorio_secret_key"),
    ("PubNub", "sub-c- pub-c- sec-c-", "u36-56", "th pubnubpublishkey"),
    ("Pulumi", "pul-", "l40", "gl pulumi-api-token"),
    ("PyPI", "pypi-", "u32+", "gl pypi-upload-token"),
    ("Ramp", "ramp_id_ ramp_sec_", "a40-48", "th ramp"),
    ("Razorpay", "rzp_live_ rzp_test_", "a14", "th razorpay"),
    ("ReadMe", "rdme_", "l60+", "gl readme-api-token"),
    ("redirect.pizza", "rpa_", "l64", "gh redirect_pizza_api_token"),
    ("Render", "rnd_", "a28-40", "Render docs: API keys"),
    ("Replicate", "r8_", "u37", "th replicate"),
    ("Resend", "re_", "a8 '_ a20+", "Resend docs: API keys"),
    ("Robinhood", "rh-api-", _UUID, "th robinhoodcrypto"),
    ("Rootly", "rootly_", "h64", "th rootly"),
    ("RubyGems", "rubygems_", "h48", "gl rubygems-api-token"),
    ("RunPod", "rpa_", "U36-50", "RunPod docs: API keys"),
    ("Samsara", "samsara_api_", "a20+", "gh samsara_api_token"),
    ("SaladCloud", "salad_cloud_", "a1-7 '_ a7+", "th saladcloudapikey"),
    ("Salesforce session", "00D", "a12 '! x80+", "th salesforce"),
    ("Salesforce refresh token", "5Aep861", "x80+", "th salesforcerefreshtoken"),
    ("Scaleway", "SCW", "U17", "Scaleway docs: API keys"),
    ("Scalingo", "tk-us-", "u48", "gl scalingo-api-token"),
    ("SendGrid", "SG.", "u16-24 '. u16-50", "gl sendgrid-api-token"),
    ("Sentry user", "sntryu_ sntrya_ sntryi_", "h64", "gl sentry-user-token"),
    ("Sentry organisation", "sntrys_", "c60+", "gl sentry-org-token"),
    ("SettleMint", "sm_aat_ sm_pat_ sm_sat_", "a16", "gl settlemint-personal-access-token"),
    ("Shippo", "shippo_live_ shippo_test_", "H40", "gl shippo-api-token"),
    ("Shopify", "shpat_ shpca_ shppa_ shpss_ shptka_", "H32", "gl shopify-access-token"),
    (
        "Slack",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.xoxb- xoxe.xoxp-",
        "u10+",
        "gl slack-bot-token",
    ),
    ("Slack app", "xapp-", "d1 '- u10+", "gl slack-app-token"),
    (
        "Slack webhook",
        "hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/",
        "a8-14 '/ a8-14 '/ b18-64",
        "gl slack-webhook-url",
    ),
    ("Snyk", "snyk_uat. snyk_sat. snyk_oat.", "x40+", "Snyk docs: authentication"),
    ("SonarQube", "squ_ sqp_ sqa_ sqco_", "a40-60", "gl sonar-api-token"),
    ("Sourcegraph", "sgp_", "w40-64", "gl sourcegraph-access-token"),
    ("Sourcegraph Cody", "slk_", "h64", "th sourcegraphcody"),
    ("Square", "sq0atp- sq0csp- sq0idp- sq0idb- sq0csb-", "u22+", "gl square-access-token"),
    ("Square access token", "EAAA", "u44+", "gl square-access-token"),
    (
        "Stripe",
        "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ pk_live_ pk_test_ sk_org_",
        "a10+",
        "gl stripe-access-token",
    ),
    ("Stripe webhook; Svix, Clerk", "whsec_", "b20+", "gh stripe_webhook_signing_secret"),
    ("Stripe payment intent", "pi_ seti_", "a14-24 '_secret_ a20-30", "th stripepaymentintent"),
    ("Supabase", "sbp_ sb_secret_ sb_publishable_ sbp_oauth_", "u20+", "th supabasetoken"),
    (
        "Tailscale",
        "tskey-api- tskey-auth- tskey-client- tskey-scim- tskey-webhook- tskey-oauth-",
        "a8+ '- a16+",
        "th tailscale",
    ),
    ("Tavily", "tvly- tvly-dev- tvly-prod-", "u20+", "Tavily docs: API key"),
    ("Telegram bot", ":AA", "d8-10 @ u32-35", "gl telegram-bot-api-token"),
    ("Tencent Cloud", "AKID", "a32", "gh tencent_cloud_secret_id"),
    ("Terraform Cloud", ".atlasv1.", "a14 @ e60-70", "gl hashicorp-tf-api-token"),
    ("Thunderstore", "tss_", "a36", "gh thunderstore_io_api_token"),
    ("Together", "tgp_v1_", "u40+", "Together docs: API keys"),
    ("Trigger.dev", "tr_dev_ tr_prod_ tr_stg_ tr_pat_", "a16+", "Trigger.dev docs: API keys"),
    ("Twilio", "AC SK", "H32", "gl twilio-api-key"),
    ("Twitter", "AAAAAAAAAAAAAAAAAAAAAA", "x30-120", "gl twitter-bearer-token"),
    ("Typeform", "tfp_", "x40-60", "gl typeform-api-token"),
    ("Ubidots", "BBFF- BBUS-", "a30", "th ubidots"),
    ("Unkey", "unkey_", "a16+", "gh unkey_root_key"),
    ("Vault service", "hvs. hvb. hvr.", "u24+", "gl vault-service-token"),
    ("Vault, old", "s.", "a24", "gl vault-service-token"),
    ("Vercel", "vcp_ vck_ vca_ vci_ vcr_ vercel_blob_rw_", "w24+", "gh vercel_personal_access_token"),
    ("Voiceflow", "VF.DM. VF.WS. VF.", "H24 '. a16", "th voiceflow"),
    ("VolcEngine", "AKLT", "a40+", "gh volcengine_access_key_id"),
    ("Weights & Biases", "wandb_v1_", "u40+", "Weights & Biases docs: API keys"),
    ("WakaTime", "waka_", _UUID, "gh wakatime_api_key"),
    ("WorkOS", "sk_test_a2V5 sk_live_a2V5", "b40+", "gh workos_production_api_key"),
    ("xAI", "xai-", "w60+", "th xai"),
    ("Yandex", "AQVN", "u35-38", "gl yandex-api-key"),
    ("Yandex, S3", "YCAJE YCM", "u20-38", "gl yandex-aws-access-token"),
    ("Yandex OAuth", "y0_", "u40+", "gh yandex_passport_oauth_token"),
    ("Zapier webhook", "hooks.zapier.com/hooks/catch/", "d4-10 '/ a5-12", "th zapierwebhook"),
    ("Zoho CRM", "1000.", "h32 '. h32", "th zohocrm"),
    ("Zuplo", "zpka_", "l32 '_ h8", "gh zuplo_consumer_api_key"),
)

# Longer values are certificates and files.
_LONGEST = 1024
_PART = re.compile(r"([A-Za-z])(\d+)(?:(\+)|-(\d+))?")


class KeyFormat(NamedTuple):
    """A format of keys: the text before its fixed text, and the text after it."""

    vendor: str
    before: re.Pattern[bytes] | None
    longest_before: int
    after: re.Pattern[bytes]
    worded: bool
    """Whether it consists only of letters that words have as well, so that it must also look random."""


@cache
def forms() -> Mapping[bytes, tuple[KeyFormat, ...]]:
    """Return the formats by their fixed text."""
    by_text: dict[bytes, list[KeyFormat]] = {}
    for vendor, texts, rest, _ in VENDORS:
        before, marked, after = rest.partition(" @")
        form = KeyFormat(
            vendor,
            re.compile(rb"(?<![0-9A-Za-z])" + _pattern(before) + rb"\Z") if marked else None,
            _longest(before) if marked else 0,
            re.compile(_pattern(after if marked else before) + rb"(?![0-9A-Za-z])"),
            not set(rest) & set("hHdBU") or "+" in rest,
        )
        for text in texts.split():
            by_text.setdefault(text.encode(), []).append(form)
    return {text: tuple(rows) for text, rows in by_text.items()}


def _pattern(rest: str) -> bytes:
    return "".join(map(_part, rest.split())).encode()


def _part(part: str) -> str:
    if part[0] == "'":
        return re.escape(part[1:])
    code, fewest, more, most = _sizes(part)
    repeated = f"{{{fewest},{_LONGEST}}}" if more else f"{{{fewest},{most}}}" if most else f"{{{fewest}}}"
    return f"[{ALPHABETS[code]}]{repeated}"


def _longest(rest: str) -> int:
    total = 0
    for part in rest.split():
        _, fewest, more, most = _sizes(part)
        total += _LONGEST if more else int(most or fewest)
    return total


def _sizes(part: str) -> tuple[str, str, str | None, str | None]:
    found = _PART.fullmatch(part)
    assert found is not None, part
    return found[1], found[2], found[3], found[4]
